// Package pgschema says what the schema of the tables in PostgreSQL may be
// called, to those who make them and those who use them.
package pgschema

import (
	"fmt"
	"regexp"

	"github.com/sqlimit/limiter"
)

// Default is the schema where nothing else is asked for.
const Default = "public"

// pattern keeps out what would need quoting or folding. PostgreSQL cuts names at
// 63 bytes without an error; a name of 48 leaves room and is never cut.
var pattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Check returns an error that matches [limiter.ErrInvalid] unless name can be
// that of a schema.
func Check(name string) error {
	if pattern.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w: the schema's name is %q; it must match %s", limiter.ErrInvalid, name, pattern)
}

// Quote makes an SQL identifier of a name that has been checked. It may be a
// reserved word such as user; it holds no quotation mark.
func Quote(name string) string { return `"` + name + `"` }
