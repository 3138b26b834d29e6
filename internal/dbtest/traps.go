package dbtest

import (
	_ "embed"
	"strings"
)

//go:embed traps.sql
var trapsSQL string

// TrapOperators returns a statement that creates in schema each operator that pg_catalog does not
// have. PostgreSQL searches pg_catalog first, but prefers an operator that fits the types exactly,
// anywhere in search_path, to one that needs a conversion. So a user who may create objects in a
// schema of the path can have code run by a statement such as SELECT now_in_seconds * 1000000.
// Before version 15, any user may do so in public. The operators return a type that fits nowhere,
// so a statement that would use one cannot even be prepared.
func TrapOperators(schema string) string {
	return strings.ReplaceAll(trapsSQL, "HOSTILE", schema)
}
