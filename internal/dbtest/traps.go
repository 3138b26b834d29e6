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

// TrapOperators returns a statement that creates in schema each operator that pg_catalog does not
// have. PostgreSQL searches pg_catalog first, but prefers an operator that fits the types exactly,
// anywhere in search_path, to one that needs a conversion. So a user who may create objects in a
// schema of the path can have code run by a statement such as SELECT now_in_seconds * 1000000.
// Before version 15, any user may do so in public. The operators return a type that fits nowhere,
// so a statement that would use one cannot even be prepared.
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
