package migrations

import (
	"database/sql"
	"fmt"
	"regexp"

	"github.com/sqlimit/limiter"
)

// defaultSchema is where the PostgreSQL store looks unless it is told otherwise.
const defaultSchema = "public"

// schemaName is what a schema may be called. PostgreSQL cuts names at 63 bytes
// without an error; a name of 48 leaves room and can never be cut.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Option changes what [Up], [Down] and [Status] do. A nil Option is refused.
type Option func(*config) error

// config is what the options set.
type config struct {
	dialect Dialect
	schema  string // PostgreSQL only; empty in SQLite
}

// WithSchema tells [Up], [Down] and [Status] to work in the given schema, which
// must exist; the store needs the same name. The default is public, whatever
// the connection's search_path is. The name must match
// ^[a-z_][a-z0-9_]{0,47}$, and the dialect must be [Postgres]: anything else is
// [limiter.ErrInvalid].
func WithSchema(name string) Option {
	return func(c *config) error {
		if c.dialect == SQLite {
			return fmt.Errorf("%w: migrations: SQLite has no schemas: leave out WithSchema and open the database file itself",
				limiter.ErrInvalid)
		}
		if !schemaName.MatchString(name) {
			return fmt.Errorf("%w: migrations: schema name %q does not match %s", limiter.ErrInvalid, name, schemaName)
		}
		c.schema = name
		return nil
	}
}

// newConfig checks everything that the caller gave, before any I/O.
func newConfig(d Dialect, db *sql.DB, opts []Option) (config, error) {
	c := config{dialect: d}
	if _, err := d.goose(); err != nil {
		return config{}, err
	}
	if db == nil {
		return config{}, fmt.Errorf("%w: migrations: db is nil: give an open *sql.DB", limiter.ErrInvalid)
	}
	if d == Postgres {
		c.schema = defaultSchema
	}
	for i, opt := range opts {
		if opt == nil {
			return config{}, fmt.Errorf("%w: migrations: option %d is nil: leave it out", limiter.ErrInvalid, i)
		}
		if err := opt(&c); err != nil {
			return config{}, err
		}
	}
	return c, nil
}
