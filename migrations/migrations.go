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
// A migration that fails or is interrupted leaves no trace, because each runs in a transaction: call Up
// again.
//
// Up changes nothing in a database that does not fit its record. Either the table limiter_goose_version
// records no migration, but a table or another object has a name of limiter's, for example because a
// backup was restored in part. Or a migration is recorded, but a table or a column is missing or has
// another type. The error says what differs and what to do. Up ignores differences that the stores do
// not notice, such as another fillfactor or an additional index.
//
// The error matches [limiter.ErrInvalid] for a wrong argument, and [limiter.ErrCanceled] if ctx
// ended. It matches [limiter.ErrMisconfigured] if an operator must act. The causes are a database that
// does not fit its record, a missing schema or privilege, a SQLite file that cannot be opened or
// written, and a database of the other [Dialect]. Other errors, such as those of connecting, are the
// driver's and match none of these.
//
// Up waits for other processes that migrate the same database until ctx ends, but at most about one
// minute. It does not close db. Calls may run concurrently, in this process and in others.
func Up(ctx context.Context, d Dialect, db *sql.DB, opts ...Option) error {
	m, err := open(d, db, opts)
	if err != nil {
		return err
	}
	return m.converge(ctx, func() error {
		p, newest, err := m.provider()
		if err != nil {
			return err
		}
		version, err := m.inspect(ctx, newest)
		if err != nil || version > newest {
			return err
		}
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrations: up: %w", err)
		}
		if version < newest {
			_, err = m.inspect(ctx, newest)
		}
		return err
	})
}

// Down reverts all migrations and deletes the state of every limiter: every key is unused
// afterwards. It also removes the table in which goose records versions. If that table does not
// exist, Down changes nothing and returns nil. It fails if the database does not fit its record, as
// [Up] does, or if a newer release has applied a version that this one does not know.
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
		p, newest, err := m.provider()
		if err != nil {
			return err
		}
		version, err := m.inspect(ctx, newest)
		if err != nil {
			return err
		}
		if version > newest {
			return fmt.Errorf("%w: migrations: table %s records version %d, which this release does not know: run migrations.Down of the newer release",
				limiter.ErrMisconfigured, m.versions.Tablename(), version)
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
	drops    string // statements that remove what inspect found last
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

// provider returns a new goose provider and its newest version. It must not be used for a second run: its locker counts
// tries over its whole life, and it creates the version table once. It must not be closed, because
// that would close the caller's *sql.DB.
func (m *migrator) provider() (p *goose.Provider, newest int64, err error) {
	files, err := m.files()
	if err != nil {
		return nil, 0, err
	}
	opts := []goose.ProviderOption{
		goose.WithStore(m.versions),
		goose.WithDisableGlobalRegistry(true), // or the application's own Go migrations would join ours
	}
	if m.dialect == Postgres {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(1, uint64(longestWait.Seconds())))
		if err != nil {
			return nil, 0, err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	if p, err = goose.NewProvider(goose.DialectCustom, m.db, files, opts...); err != nil {
		return nil, 0, err
	}
	sources := p.ListSources() // in order
	return p, sources[len(sources)-1].Version, nil
}

// status reads the status without a provider, because a provider would create the version table and
// take the lock.
func (m *migrator) status(ctx context.Context) ([]MigrationStatus, error) {
	p, _, err := m.provider()
	if err != nil {
		return nil, err
	}
	exists, err := m.versions.exists(ctx, m.db)
	if err != nil {
		return nil, err
	}
	var db database.DBTxConn = m.db
	if exists && m.dialect == Postgres {
		tx, err := m.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		defer func() { _ = tx.Rollback() }()
		// In some query modes pgx gets times as text, and reads no other style.
		if _, err := tx.ExecContext(ctx, `SET LOCAL DateStyle = ISO`); err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		db = tx
	}
	var list []MigrationStatus
	for _, source := range p.ListSources() {
		s := MigrationStatus{Version: source.Version, Name: path.Base(source.Path)}
		if exists {
			found, err := m.versions.GetMigration(ctx, db, source.Version)
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
