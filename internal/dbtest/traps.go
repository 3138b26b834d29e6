package dbtest

import (
	"fmt"
	"strings"
)

// trapTypes are the types between which a hostile schema has every operator that
// pg_catalog lacks.
var trapTypes = []string{
	"smallint", "integer", "bigint", "numeric", "real", "double precision", "text", "bytea", "boolean",
	"oid", "regclass", "name", "timestamptz", "interval", "bigint[]", "text[]", "bytea[]",
}

// symbols are the operators that statements use, if only by IN, CASE or BETWEEN.
var symbols = []string{"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "|", "&", "<<", ">>", "||"}

// TrapOperators returns a statement that makes in schema each operator that pg_catalog does not
// have. Although PostgreSQL searches pg_catalog first, it takes what fits the types exactly,
// wherever in search_path that is, before what needs a conversion: who may create objects in a
// schema of the path, as anybody may in public before version 15, has code of his own run by whoever
// runs a statement such as SELECT now_in_seconds * 1000000. What the operators here answer fits
// nowhere, so that a statement that would use one cannot even be prepared.
func TrapOperators(schema string) string {
	quoted := func(list []string) string { return "'" + strings.Join(list, "', '") + "'" }
	return fmt.Sprintf(`DO $do$
		DECLARE l text; r text; op text;
		BEGIN
			FOREACH l IN ARRAY ARRAY[%[2]s] LOOP
				FOREACH r IN ARRAY ARRAY[%[2]s] LOOP
					EXECUTE format('CREATE FUNCTION %[1]s.trap(%%s, %%s) RETURNS point LANGUAGE plpgsql AS ''BEGIN RAISE ''''hijacked''''; END''', l, r);
					FOREACH op IN ARRAY ARRAY[%[3]s] LOOP
						CONTINUE WHEN EXISTS (SELECT FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
							AND oprname = op AND oprleft = l::regtype AND oprright = r::regtype);
						EXECUTE format('CREATE OPERATOR %[1]s.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = %[1]s.trap)', op, l, r);
					END LOOP;
				END LOOP;
			END LOOP;
		END $do$`, schema, quoted(trapTypes), quoted(symbols))
}
