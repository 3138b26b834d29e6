package dbtest

import "strings"

// trapsSQL has the types between which a hostile schema has every operator that pg_catalog lacks, and the
// operators that statements use, if only by IN, CASE or BETWEEN.
const trapsSQL = `DO $do$
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
	END $do$`

// TrapOperators returns a statement that creates in schema each operator that pg_catalog does not
// have. PostgreSQL searches pg_catalog first, but prefers an operator that fits the types exactly,
// anywhere in search_path, to one that needs a conversion. So a user who may create objects in a
// schema of the path can have code run by a statement such as SELECT now_in_seconds * 1000000.
// Before version 15, any user may do so in public. The operators return a type that fits nowhere,
// so a statement that would use one cannot even be prepared.
func TrapOperators(schema string) string {
	return strings.ReplaceAll(trapsSQL, "HOSTILE", schema)
}
