-- The types between which a hostile schema has every operator that pg_catalog lacks, and the operators that statements
-- use, if only by IN, CASE or BETWEEN.
DO $do$
DECLARE
	l text; r text; op text;
	types text[] := ARRAY['smallint', 'integer', 'bigint', 'numeric', 'real', 'double precision', 'text', 'bytea', 'boolean',
		'oid', 'regclass', 'name', 'timestamptz', 'interval', 'bigint[]', 'text[]', 'bytea[]'];
BEGIN
	FOREACH l IN ARRAY types LOOP
		FOREACH r IN ARRAY types LOOP
			EXECUTE format('CREATE FUNCTION HOSTILE.trap(%s, %s) RETURNS point LANGUAGE plpgsql AS ''BEGIN RAISE ''''hijacked''''; END''', l, r);
			FOREACH op IN ARRAY ARRAY['+', '-', '*', '/', '%', '=', '<>', '<', '<=', '>', '>=', '|', '&', '<<', '>>', '||'] LOOP
				CONTINUE WHEN EXISTS (SELECT FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
					AND oprname = op AND oprleft = l::regtype AND oprright = r::regtype);
				EXECUTE format('CREATE OPERATOR HOSTILE.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = HOSTILE.trap)', op, l, r);
			END LOOP;
		END LOOP;
	END LOOP;
END $do$
