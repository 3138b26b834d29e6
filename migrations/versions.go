package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/sqlimit/limiter/internal/pgschema"
)

// versionTable is where goose notes what has been applied. The name is our own:
// in goose's default table, version 1 of the application's migrations and ours
// would be taken for each other.
const versionTable = "limiter_goose_version"

// lockID is the advisory lock under which PostgreSQL is migrated: the 64-bit
// FNV-1a hash of "github.com/sqlimit/limiter/migrations", halved to be positive.
// goose's default is shared by every program that migrates with goose.
const lockID int64 = 8189646887991628505

// errRaced means that somebody else applied or removed the same version first.
// The transaction that met it was rolled back.
var errRaced = errors.New("migrations: another process has migrated the database meanwhile")

// versionStore is goose's own bookkeeping, with its table layout, so that the
// goose command line and this package can take turns. What differs: goose looks
// for the table by its unquoted name (and not at all in SQLite), and it notes a
// version without looking whether it is noted already.
type versionStore struct {
	database.Store
	config
}

// newVersionStore returns the bookkeeping for a configuration.
func newVersionStore(c config) (*versionStore, error) {
	dialect, err := c.dialect.goose()
	if err != nil {
		return nil, err
	}
	table := versionTable
	if c.dialect == Postgres {
		table = pgschema.Quote(c.schema) + "." + versionTable
	}
	store, err := database.NewStore(dialect, table)
	if err != nil {
		return nil, err
	}
	return &versionStore{Store: store, config: c}, nil
}

// TableExists reports whether the version table is there. goose finds this
// method by its name.
func (s *versionStore) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	query, args := `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?`, []any{versionTable}
	if s.dialect == Postgres {
		query = `SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = $2`
		args = []any{s.schema, versionTable}
	}
	var n int64
	if err := db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return false, fmt.Errorf("migrations: look for table %s: %w", s.Tablename(), err)
	}
	return n > 0, nil
}

// Insert notes that a version has been applied, in the transaction that applied
// it. Two processes may both have found the version missing; the database lets
// them write one after the other, and the second must not note it twice.
func (s *versionStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	_, err := s.GetMigration(ctx, db, req.Version)
	switch {
	case err == nil:
		return errRaced
	case errors.Is(err, database.ErrVersionNotFound):
		return s.Store.Insert(ctx, db, req)
	default:
		return err
	}
}

// Delete notes that a version has been taken back, as Insert does.
func (s *versionStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if _, err := s.GetMigration(ctx, db, version); err != nil {
		if errors.Is(err, database.ErrVersionNotFound) {
			return errRaced
		}
		return err
	}
	return s.Store.Delete(ctx, db, version)
}

// create creates the version table if it is not there. goose would do so, too,
// but before it takes its lock, and it sleeps for a second when it comes second.
func (s *versionStore) create(ctx context.Context, db *sql.DB) error {
	exists, err := s.TableExists(ctx, db)
	if err != nil || exists {
		return err
	}
	return s.transact(ctx, db, func(tx *sql.Tx) error {
		if s.dialect == Postgres { // somebody may have created it while we waited for the lock
			if exists, err := s.TableExists(ctx, tx); err != nil || exists {
				return err
			}
		}
		// In SQLite this comes first: a transaction that reads before it writes
		// cannot write any more once another has. A second comer fails.
		if err := s.CreateVersionTable(ctx, tx); err != nil {
			return err
		}
		return s.Store.Insert(ctx, tx, database.InsertRequest{Version: 0})
	})
}

// drop drops the version table unless a version is noted in it.
func (s *versionStore) drop(ctx context.Context, db *sql.DB) error {
	return s.transact(ctx, db, func(tx *sql.Tx) error {
		if s.dialect == Postgres { // the goose command line takes no advisory lock
			if _, err := tx.ExecContext(ctx, `LOCK TABLE `+s.Tablename()+` IN ACCESS EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		// Asking by a DELETE, because a write comes first in SQLite, see create.
		//nolint:gosec // the schema's name has been checked, and is quoted
		unused := fmt.Sprintf(`DELETE FROM %[1]s WHERE version_id = 0
			AND NOT EXISTS (SELECT 1 FROM %[1]s WHERE version_id <> 0)`, s.Tablename())
		res, err := tx.ExecContext(ctx, unused)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `DROP TABLE `+s.Tablename())
		return err
	})
}

// transact runs f in a transaction, in PostgreSQL under the advisory lock.
func (s *versionStore) transact(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no-op after Commit
	if s.dialect == Postgres {
		if _, err := tx.ExecContext(ctx, pinSearchPath); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, lockID); err != nil {
			return err
		}
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// applied describes what the version table holds. Two equal answers mean that
// nobody has migrated the database in between.
func (s *versionStore) applied(ctx context.Context, db *sql.DB) (string, error) {
	exists, err := s.TableExists(ctx, db)
	if err != nil || !exists {
		return "", err
	}
	list, err := s.ListMigrations(ctx, db)
	if err != nil {
		// Two reads: somebody may have dropped the table in between.
		if exists, lookErr := s.TableExists(ctx, db); lookErr == nil && !exists {
			return "", nil
		}
		return "", err
	}
	state := "versions"
	for _, m := range list {
		state += fmt.Sprintf(" %d", m.Version)
	}
	return state, nil
}
