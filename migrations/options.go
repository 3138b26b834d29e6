package migrations

import (
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// Option changes what [Up], [Down] and [Status] do. They reject a nil Option.
type Option func(*config) error

// config is what the options set.
type config struct {
	dialect Dialect
	schema  string // PostgreSQL only; empty in SQLite
	source  fs.FS  // FS, but for tests of migrations that do not exist yet
}

// WithSchema sets the schema in PostgreSQL. It must exist, and the store needs the same name. The
// default is public, whatever the connection's search_path is. The name must match
// ^[a-z_][a-z0-9_]{0,47}$. With another name, or with [SQLite], the error is [limiter.ErrInvalid].
func WithSchema(name string) Option {
	return func(c *config) error {
		if c.dialect == SQLite {
			return fmt.Errorf("%w: migrations: SQLite has no schemas: leave out WithSchema and open the database file itself",
				limiter.ErrInvalid)
		}
		if err := pgschema.Check(name); err != nil {
			return fmt.Errorf("migrations: %w", err)
		}
		c.schema = name
		return nil
	}
}

// newConfig checks all arguments, before any I/O.
func newConfig(d Dialect, db *sql.DB, opts []Option) (config, error) {
	c := config{dialect: d, source: FS}
	if _, err := d.goose(); err != nil {
		return config{}, err
	}
	if db == nil {
		return config{}, fmt.Errorf("%w: migrations: db is nil: pass an open *sql.DB", limiter.ErrInvalid)
	}
	if d == Postgres {
		c.schema = pgschema.Default
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
