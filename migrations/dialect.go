package migrations

import (
	"fmt"

	"github.com/pressly/goose/v3"

	"github.com/sqlimit/limiter"
)

// Dialect is the kind of database that [Up], [Down] and [Status] work on. The zero Dialect is not
// valid.
type Dialect string

const (
	// Postgres is PostgreSQL 15 and later, through any database/sql driver.
	Postgres Dialect = "postgres"
	// SQLite is SQLite 3.42 and later, through any database/sql driver.
	SQLite Dialect = "sqlite"
)

// goose returns goose's name of the dialect.
func (d Dialect) goose() (goose.Dialect, error) {
	switch d {
	case Postgres:
		return goose.DialectPostgres, nil
	case SQLite:
		return goose.DialectSQLite3, nil
	default:
		return "", fmt.Errorf("%w: migrations: unknown dialect %q: pass migrations.Postgres or migrations.SQLite",
			limiter.ErrInvalid, string(d))
	}
}
