// Package migrations creates and removes the tables of limiter in PostgreSQL and SQLite.
//
// Use it when you deploy, with a role that may create tables. The stores create no tables, so the
// application can run with a role that may not.
//
//	import _ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
//
//	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	return migrations.Up(ctx, migrations.Postgres, db)
//
// The migrations are files for goose (github.com/pressly/goose). The table limiter_goose_version
// records in goose's format which ones have been applied, so the goose command line and this package
// can take turns on one database. Programs with another migration tool take the files from [FS]. Do
// not pass a file to psql or to the sqlite3 shell: they would also run the part after "goose Down",
// which drops all tables.
//
// # Restored backups
//
// Restore the table limiter_goose_version with its rows, as a dump of the whole database does. [Up]
// does not guess which migrations made the tables that it finds. If that table records none, Up
// changes nothing and returns an error that says what there is and what to do.
//
// # Two deployments at the same time
//
// Any number of processes may call [Up] on one database at the same time. Each migration is applied
// once, and all calls succeed. In PostgreSQL the processes take turns under an advisory lock. In
// SQLite one transaction writes at a time, and a migration and its record are one transaction. The
// second process fails, sees that the work is done, and reports success.
//
// # Connections
//
// The advisory lock belongs to a session. Migrate PostgreSQL over a direct connection, or through a
// pooler in session mode, but not through one in transaction mode.
package migrations
