// Package pgschema checks and quotes the name of the schema of the tables in PostgreSQL. Packages
// migrations and postgres call it.
package pgschema

import (
	"fmt"
	"regexp"

	"github.com/sqlimit/limiter"
)

// Default is the schema if no other is given.
const Default = "public"

// pattern excludes names that would need quoting or case folding. PostgreSQL cuts names at 63 bytes
// without an error; a name of at most 48 bytes is never cut.
var pattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Check returns an error that matches [limiter.ErrInvalid] if name is not a valid schema name.
func Check(name string) error {
	if pattern.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w: the schema's name is %q; it must match %s", limiter.ErrInvalid, name, pattern)
}

// Quote returns name as a quoted SQL identifier, so that it may be a reserved word such as user.
// The name must have passed [Check].
func Quote(name string) string { return `"` + name + `"` }
