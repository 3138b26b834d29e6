package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// release is a version and the tables that its migration and all earlier ones create.
type release struct {
	version int64
	layout  layout
}

// survey learns what each version looks like, starting with version 0, which has no table. It
// applies the migrations where they leave no trace, so that the files remain the only definition of
// the tables.
func (m *migrator) survey(ctx context.Context) ([]release, error) {
	c := m.config
	if c.dialect == Postgres {
		c.schema = scratchSchema
	}
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.sql") // in order
	if err != nil {
		return nil, err
	}
	releases := []release{{layout: layout{}}}
	err = m.scratch(ctx, func(db database.DBTxConn) error {
		for _, name := range names {
			version, err := goose.NumericComponent(name)
			if err != nil {
				return err
			}
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			_, up, _ := strings.Cut(string(text), upMark)
			up, _, _ = strings.Cut(up, downMark)
			if _, err := db.ExecContext(ctx, up); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			l, err := c.describe(ctx, db)
			if err != nil {
				return err
			}
			releases = append(releases, release{version, l})
		}
		return nil
	})
	return releases, err
}

// scratch runs f where tables disappear afterwards: in PostgreSQL as temporary tables in a
// transaction that is rolled back, in SQLite in a database in memory of the same driver.
func (m *migrator) scratch(ctx context.Context, f func(database.DBTxConn) error) error {
	if m.dialect == Postgres {
		tx, err := m.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(f(tx), tx.Rollback())
	}
	db := sql.OpenDB(inMemory{m.db.Driver()})
	defer db.Close()
	conn, err := db.Conn(ctx) // each connection has a database of its own
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close())
}

// inMemory connects to SQLite databases in memory.
type inMemory struct{ driver driver.Driver }

func (c inMemory) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(":memory:") }
func (c inMemory) Driver() driver.Driver                        { return c.driver }

// finding is what reconcile found in a database.
type finding struct {
	newer  int64   // the version that a newer release has recorded, or 0
	record []int64 // what the version table must hold instead; nil if it is right
	advice string  // what differs from the recorded version, "" if nothing does
}

// reconcile makes the version table match the existing tables. It fails if they are not those of
// any version. If a newer release has recorded a version, reconcile returns it.
//
// If survey fails, reconcile does nothing, because a database whose record is right needs no
// comparison.
func (m *migrator) reconcile(ctx context.Context) (newer int64, err error) {
	if m.releases == nil && m.surveyErr == nil {
		m.releases, m.surveyErr = m.survey(ctx)
	}
	if ctx.Err() != nil || m.surveyErr != nil {
		return 0, ctx.Err()
	}
	if m.found, err = m.look(ctx); err != nil || m.found.record == nil {
		return m.found.newer, err
	}
	err = m.versions.transact(ctx, m.db, func(tx *sql.Tx) error {
		// Another process may have migrated the database since.
		if m.found, err = m.examine(ctx, tx); err != nil || m.found.record == nil {
			return err
		}
		return m.versions.replace(ctx, tx, m.found.record)
	})
	return m.found.newer, err
}

// look examines the database without a lock.
func (m *migrator) look(ctx context.Context) (finding, error) {
	if m.dialect == SQLite { // a transaction may be one that writes, if the DSN says so
		return m.examine(ctx, m.db)
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return finding{}, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	if _, err := tx.ExecContext(ctx, pinSearchPath); err != nil {
		return finding{}, err
	}
	return m.examine(ctx, tx)
}

// examine compares the tables and the version table with the releases.
//
// The tables decide which version the database has, if they match one exactly. If
// they match none, the recorded version counts as long as everything is there
// that the stores need: an operator may have changed the rest on purpose.
func (m *migrator) examine(ctx context.Context, db database.DBTxConn) (finding, error) {
	rows, _, err := m.versions.rows(ctx, db)
	if err != nil {
		return finding{}, err
	}
	got, err := m.describe(ctx, db)
	if err != nil {
		return finding{}, err
	}
	roots := map[string]bool{}
	for _, r := range m.releases {
		for o := range r.layout {
			roots[o.root] = true
		}
	}
	got = got.only(roots)
	var recorded int64
	for _, row := range rows {
		if row.IsApplied {
			recorded = max(recorded, row.Version)
		}
	}

	newest := m.releases[len(m.releases)-1]
	if recorded > newest.version {
		if list := diff(got, newest.layout, lost); len(list) > 0 {
			return finding{}, fmt.Errorf("%w: migrations: table %s records version %d, which this release does not know (its newest is %d), but %s: run migrations.Up of the newer release, or drop that table and what is left of the others",
				limiter.ErrMisconfigured, m.versions.Tablename(), recorded, newest.version, join(list))
		}
		return finding{newer: recorded}, nil
	}
	if matching := m.matching(got, recorded); matching != nil {
		if versions := versionsOf(matching); !records(rows, versions) {
			return finding{record: versions}, nil
		}
		return finding{}, nil
	}

	nearest, changes := m.nearest(got, recorded)
	advice := m.advise(nearest.version, got, changes)
	if nearest.version == recorded && len(diff(got, nearest.layout, needed)) == 0 {
		return finding{advice: advice}, nil
	}
	return finding{}, fmt.Errorf("%w: migrations: %s", limiter.ErrMisconfigured, advice)
}

// matching returns the releases up to the one that the tables match exactly, or nil. If they match
// several that differ only in rows, it is the recorded one, otherwise the newest.
func (m *migrator) matching(got layout, recorded int64) (releases []release) {
	for i, r := range m.releases {
		if len(diff(got, r.layout, exactly)) == 0 {
			if releases = m.releases[:i+1]; r.version == recorded {
				break
			}
		}
	}
	return releases
}

// nearest returns the release that the tables should match, with the differences: that of the
// recorded version, otherwise the one with the fewest differences.
func (m *migrator) nearest(got layout, recorded int64) (best release, changes []difference) {
	for _, r := range m.releases[1:] {
		list := diff(got, r.layout, exactly)
		if r.version == recorded {
			return r, list
		}
		if changes == nil || len(list) <= len(changes) {
			best, changes = r, list
		}
	}
	return best, changes
}

// advise tells an operator how the tables differ from a version, and what to do.
func (m *migrator) advise(version int64, got layout, changes []difference) string {
	where, qualify := "the database", func(name string) string { return name }
	if m.dialect == Postgres {
		where = "schema " + pgschema.Quote(m.schema)
		qualify = func(name string) string { return pgschema.Quote(m.schema) + "." + name }
	}
	return fmt.Sprintf("the tables in %s differ from version %d: %s: "+
		"change them or, if only limiter uses them, drop them with the state of every key (%s) and try again",
		where, version, join(changes), got.drops(qualify))
}

func versionsOf(releases []release) []int64 {
	versions := make([]int64, len(releases))
	for i, r := range releases {
		versions[i] = r.version
	}
	return versions
}

// records reports whether the rows, the newest first, record these versions. No
// row means version 0.
func records(rows []*database.ListMigrationsResult, versions []int64) bool {
	if len(rows) == 0 {
		return len(versions) == 1
	}
	if len(rows) != len(versions) {
		return false
	}
	for i, row := range slices.Backward(rows) {
		if !row.IsApplied || row.Version != versions[len(rows)-1-i] {
			return false
		}
	}
	return true
}
