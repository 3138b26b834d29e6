// Package migrations creates and removes the tables of limiter, in PostgreSQL
// and in SQLite. It is the only place with their definition. No store creates
// tables by itself: migrate when you deploy, with a role that may create them,
// and let the application run with one that may not.
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
// The migrations are files for goose (github.com/pressly/goose). The table
// limiter_goose_version records in goose's way which have been applied, so the
// goose command line and this package can take turns on one database. Programs
// that migrate in another way take the files from [FS].
//
// # Restored tables, and tables made by hand
//
// The version table may not match the tables: a dump was restored without its
// rows, or an operator made the tables with psql. [Up] compares the tables with
// each version, and records the one that they match exactly. If they match none,
// Up changes nothing and says what differs.
//
// To know what a version looks like, Up runs the migrations on temporary tables in
// PostgreSQL, and on a database in memory in SQLite. A role that lacks TEMPORARY
// on the database can migrate, but not adopt tables.
//
// # Two deployments at once
//
// Any number of processes may call [Up] on one database at the same time. Each
// migration is applied once, and all calls succeed. In PostgreSQL they take turns
// under an advisory lock. SQLite lets one transaction write at a time, and a
// migration and its record are one transaction: the second process fails, sees
// that the work is done, and reports success.
//
// # Connections
//
// The advisory lock belongs to a session. Migrate PostgreSQL over a direct
// connection or a pooler in session mode, not through one in transaction mode.
package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/sqlimit/limiter"
)

// MigrationStatus tells whether one migration has been applied.
type MigrationStatus struct {
	Version int64  // from 1 upwards
	Name    string // of the file in [FS], without its directory
	Applied bool
	// AppliedAt is when the migration was applied, as goose noted it: by the
	// database's clock, in PostgreSQL in the time zone of the session that
	// migrated, which is not noted. The zero time if Applied is false.
	AppliedAt time.Time
}

// Up applies all migrations that have not been applied. It changes nothing and
// returns nil if there are none, also if a newer release has applied more than
// it knows of.
//
// Up adopts tables that it did not make: if they match a version exactly, it
// records that version and goes on from there. This repairs a database that was
// restored without its data, or whose tables were made by hand. If the tables
// match no version, Up changes nothing, and the error says what differs and what
// to do. Where a version is recorded, Up ignores changes that the stores do not
// notice, such as another fillfactor or a further index.
//
// Wrong arguments are [limiter.ErrInvalid]. What an operator must repair is
// [limiter.ErrMisconfigured]: tables that match no version, a schema that does not
// exist, a role that lacks a privilege, a SQLite file that cannot be opened or
// written or is no database, a database of the other [Dialect]. The end of ctx is
// [limiter.ErrCanceled]. Other errors, such as those of connecting, are the
// driver's and have none of these classes. A migration that fails leaves no
// trace: each runs in a transaction.
//
// Up waits for others that migrate the same database until ctx ends, but not
// longer than about a minute. It does not close db. Calls may run concurrently,
// in this process and in others.
func Up(ctx context.Context, d Dialect, db *sql.DB, opts ...Option) error {
	m, err := open(d, db, opts)
	if err != nil {
		return err
	}
	return m.converge(ctx, func() error {
		if newer, err := m.reconcile(ctx); err != nil || newer != 0 {
			return err
		}
		p, err := m.provider()
		if err != nil {
			return err
		}
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrations: up: %w", err)
		}
		return nil
	})
}

// Down reverts all migrations, and removes the state of every limiter with them:
// afterwards every key is as if never used. It leaves nothing behind, not even
// the table in which goose records versions. It changes nothing and returns nil
// if that table does not exist. If it exists, Down first adopts the tables as
// [Up] does. It fails if a newer release has applied a version that it does not
// know.
//
// Errors, waiting and concurrency are those of [Up]. While one process calls Up
// and another Down, either may win.
func Down(ctx context.Context, d Dialect, db *sql.DB, opts ...Option) error {
	m, err := open(d, db, opts)
	if err != nil {
		return err
	}
	return m.converge(ctx, func() error {
		if exists, err := m.versions.exists(ctx, db); err != nil || !exists {
			return err
		}
		newer, err := m.reconcile(ctx)
		if err != nil {
			return err
		}
		if newer != 0 {
			return fmt.Errorf("%w: migrations: table %s records version %d, which this release does not know: run migrations.Down of the newer release",
				limiter.ErrMisconfigured, m.versions.Tablename(), newer)
		}
		p, err := m.provider()
		if err != nil {
			return err
		}
		if _, err := p.DownTo(ctx, 0); err != nil {
			return fmt.Errorf("migrations: down: %w", err)
		}
		if err := m.versions.drop(ctx, db); err != nil {
			return fmt.Errorf("migrations: drop table %s: %w", m.versions.Tablename(), err)
		}
		return nil
	})
}

// Status lists all migrations, the oldest first. It writes nothing and waits
// for no lock; in PostgreSQL it needs SELECT on the table limiter_goose_version
// and nothing else. Errors and concurrency are those of [Up].
func Status(ctx context.Context, d Dialect, db *sql.DB, opts ...Option) ([]MigrationStatus, error) {
	m, err := open(d, db, opts)
	if err != nil {
		return nil, err
	}
	var list []MigrationStatus
	err = m.converge(ctx, func() error {
		list, err = m.status(ctx)
		return err
	})
	return list, err
}

// migrator works on one database with checked arguments.
type migrator struct {
	config
	db       *sql.DB
	versions *versionStore

	releases  []release // what each version looks like, nil if survey failed
	surveyErr error     // why survey failed
	found     finding   // what reconcile found last
}

// open checks the arguments. It does no I/O.
func open(d Dialect, db *sql.DB, opts []Option) (*migrator, error) {
	c, err := newConfig(d, db, opts)
	if err != nil {
		return nil, err
	}
	store, err := newVersionStore(c)
	if err != nil {
		return nil, err
	}
	return &migrator{config: c, db: db, versions: store}, nil
}

// provider returns a new goose provider. It must not be kept for a second run:
// its locker counts tries over its whole life, and it creates the version table
// once. It must not be closed: that would close the caller's *sql.DB.
func (m *migrator) provider() (*goose.Provider, error) {
	files, err := m.files()
	if err != nil {
		return nil, err
	}
	opts := []goose.ProviderOption{
		goose.WithStore(m.versions),
		goose.WithDisableGlobalRegistry(true), // or the application's own Go migrations would join ours
	}
	if m.dialect == Postgres {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(1, uint64(patience.Seconds())))
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(goose.DialectCustom, m.db, files, opts...)
}

// status asks no provider for the status: that would create the version table
// and take the lock, where the caller only wants to look.
func (m *migrator) status(ctx context.Context) ([]MigrationStatus, error) {
	p, err := m.provider()
	if err != nil {
		return nil, err
	}
	exists, err := m.versions.exists(ctx, m.db)
	if err != nil {
		return nil, err
	}
	var list []MigrationStatus
	for _, source := range p.ListSources() {
		s := MigrationStatus{Version: source.Version, Name: path.Base(source.Path)}
		if exists {
			found, err := m.versions.GetMigration(ctx, m.db, source.Version)
			switch {
			case err == nil:
				s.Applied, s.AppliedAt = found.IsApplied, found.Timestamp
			case !errors.Is(err, database.ErrVersionNotFound):
				return nil, fmt.Errorf("migrations: read table %s: %w", m.versions.Tablename(), err)
			}
		}
		list = append(list, s)
	}
	return list, nil
}
