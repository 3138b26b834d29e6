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

// MigrationStatus says whether one migration has been applied.
type MigrationStatus struct {
	Version int64  // from 1 upwards
	Name    string // of the file in [FS], without its directory
	Applied bool
	// AppliedAt is when the migration was applied, by the database's clock as goose recorded it. In
	// PostgreSQL it is in the time zone of the session that migrated, which is not recorded. It is
	// the zero time if Applied is false.
	AppliedAt time.Time
}

// Up applies all migrations that have not been applied. If there are none, it changes nothing and
// returns nil. That also holds if a newer release has applied more migrations.
//
// Up adopts tables that it did not create: if they match a version exactly, it records that version
// and continues from there. This repairs a database that was restored without its data, or whose
// tables were made by hand. If the tables match no version, Up changes nothing, and the error says
// what differs and what to do. If a version is recorded, Up ignores differences that the stores do
// not notice, such as another fillfactor or an additional index.
//
// The error matches [limiter.ErrInvalid] for a wrong argument, and [limiter.ErrCanceled] if ctx
// ended. It matches [limiter.ErrMisconfigured] if an operator must act. The causes are tables that
// match no version, a missing schema or privilege, a SQLite file that cannot be opened or written,
// and a database of the other [Dialect]. Other errors, such as those of connecting, are the
// driver's and match none of these. A migration that fails leaves no trace, because each runs in a
// transaction.
//
// Up waits for other processes that migrate the same database until ctx ends, but at most about one
// minute. It does not close db. Calls may run concurrently, in this process and in others.
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

// Down reverts all migrations and deletes the state of every limiter: every key is unused
// afterwards. It also removes the table in which goose records versions. If that table does not
// exist, Down changes nothing and returns nil. Otherwise it first adopts the tables as [Up] does.
// It fails if a newer release has applied a version that this one does not know.
//
// Errors, waiting and concurrency are those of Up. If one process calls Up and another one Down,
// either may win.
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

// Status lists all migrations, the oldest first. It writes nothing and waits for no lock. In
// PostgreSQL it needs only SELECT on the table limiter_goose_version. Errors and concurrency are
// those of [Up].
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

// provider returns a new goose provider. It must not be used for a second run: its locker counts
// tries over its whole life, and it creates the version table once. It must not be closed, because
// that would close the caller's *sql.DB.
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
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(1, uint64(longestWait.Seconds())))
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(goose.DialectCustom, m.db, files, opts...)
}

// status reads the status without a provider, because a provider would create the version table and
// take the lock.
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
