package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/pressly/goose/v3/database"

	"github.com/sqlimit/limiter/internal/pgschema"
)

// versionTable is where goose records what has been applied. It has a name of its own, because
// goose's default table may hold the application's migrations with the same version numbers.
const versionTable = "limiter_goose_version"

// lockID is the advisory lock under which PostgreSQL is migrated: the 64-bit
// FNV-1a hash of "github.com/sqlimit/limiter/migrations", halved to be positive.
// goose's default is shared by every program that migrates with goose.
const lockID int64 = 8189646887991628505

// errRaced means that another process applied or removed the same version first. The transaction
// was rolled back.
var errRaced = errors.New("migrations: another process has migrated the database meanwhile")

// errUnreadable means that the rows of the version table could not be read.
var errUnreadable = errors.New("migrations: read table " + versionTable)

// versionStore is goose's bookkeeping, in goose's table layout, so that the goose
// command line and this package can take turns. It differs from goose's own in
// three ways. It looks for the table by its qualified name. It creates the table
// in the transaction that inserts the first version, so that a failed migration
// leaves no table behind. And it does not insert a version twice.
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

// TableExists tells goose, which finds this method by its name, not to create
// the version table: Insert does.
func (s *versionStore) TableExists(context.Context, database.DBTxConn) (bool, error) {
	return true, nil
}

// exists reports whether the version table exists.
func (s *versionStore) exists(ctx context.Context, db database.DBTxConn) (bool, error) {
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

// rows returns what the version table holds, the newest row first. There are
// none if the table does not exist.
func (s *versionStore) rows(ctx context.Context, db database.DBTxConn) (list []*database.ListMigrationsResult, exists bool, err error) {
	if exists, err = s.exists(ctx, db); err != nil || !exists {
		return nil, exists, err
	}
	if list, err = s.Store.ListMigrations(ctx, db); err != nil {
		return nil, true, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return list, true, nil
}

// ListMigrations returns version 0, which goose needs, if nothing is recorded.
func (s *versionStore) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	list, _, err := s.rows(ctx, db)
	if err == nil && len(list) == 0 {
		list = []*database.ListMigrationsResult{{Version: 0, IsApplied: true}}
	}
	return list, err
}

// Insert records that a version has been applied, in the transaction that applied
// it. Two processes may both have found the version missing. The database makes
// them write one after the other, and the second must not record it again. Nor may
// a process record a version after another one has reverted the version before it.
func (s *versionStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	list, exists, err := s.rows(ctx, db)
	if err != nil {
		return err
	}
	if has(list, req.Version) || req.Version > 1 && !has(list, req.Version-1) {
		return errRaced
	}
	if !exists {
		if err := s.CreateVersionTable(ctx, db); err != nil {
			return err
		}
	}
	if len(list) == 0 && req.Version != 0 {
		if err := s.Store.Insert(ctx, db, database.InsertRequest{Version: 0}); err != nil {
			return err
		}
	}
	return s.Store.Insert(ctx, db, req)
}

// Delete records that a version has been reverted, in the transaction that
// reverted it. Another process may have reverted it before, or have applied a later
// version meanwhile, which needs this one.
func (s *versionStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	list, _, err := s.rows(ctx, db)
	if err != nil {
		return err
	}
	if !has(list, version) || has(list, version+1) {
		return errRaced
	}
	return s.Store.Delete(ctx, db, version)
}

func has(list []*database.ListMigrationsResult, version int64) bool {
	return slices.ContainsFunc(list, func(m *database.ListMigrationsResult) bool { return m.Version == version })
}

// drop drops the version table unless a version is recorded in it.
func (s *versionStore) drop(ctx context.Context, db *sql.DB) error {
	return s.transact(ctx, db, func(tx *sql.Tx) error {
		if s.dialect == Postgres { // the goose command line takes no advisory lock
			if _, err := tx.ExecContext(ctx, `LOCK TABLE `+s.Tablename()+` IN ACCESS EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		// The transaction writes before it reads: in SQLite, one that has read cannot
		// write after another has written.
		//nolint:gosec // the schema's name has been checked, and is quoted
		unused := fmt.Sprintf(`DELETE FROM %[1]s WHERE version_id = 0
			AND NOT EXISTS (SELECT 1 FROM %[1]s WHERE version_id <> 0)`, s.Tablename())
		if _, err := tx.ExecContext(ctx, unused); err != nil {
			return err
		}
		if list, _, err := s.rows(ctx, tx); err != nil || len(list) > 0 {
			return err
		}
		_, err := tx.ExecContext(ctx, `DROP TABLE `+s.Tablename())
		return err
	})
}

// transact runs f in a transaction, in PostgreSQL under the advisory lock.
func (s *versionStore) transact(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
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

// applied describes what the version table holds. Two equal answers mean that no process has
// migrated the database in between.
func (s *versionStore) applied(ctx context.Context, db *sql.DB) (string, error) {
	list, exists, err := s.rows(ctx, db)
	if err != nil {
		// Two reads: somebody may have dropped the table in between.
		if exists, lookErr := s.exists(ctx, db); lookErr == nil && !exists {
			return "", nil
		}
		return "", err
	}
	if !exists {
		return "", nil
	}
	state := "versions"
	for _, m := range list {
		state += fmt.Sprintf(" %d", m.Version)
	}
	return state, nil
}
