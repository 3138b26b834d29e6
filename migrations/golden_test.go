package migrations_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// dump describes everything that there is in the database, or in the schema.
func (d database) dump(t *testing.T) string {
	t.Helper()
	var args []any
	if d.dialect == migrations.Postgres {
		args = append(args, d.schema)
	}
	query, err := os.ReadFile(filepath.Join("testdata", string(d.dialect)+".sql"))
	must(t, err)
	rows, err := d.QueryContext(t.Context(), string(query), args...)
	must(t, err)
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var line string
		must(t, rows.Scan(&line))
		b.WriteString(line + "\n")
	}
	must(t, rows.Err())
	return b.String()
}

// wantGolden fails the test unless the database holds exactly what Up creates, and records each version
// once.
func (d database) wantGolden(t *testing.T) {
	t.Helper()
	got, file := d.dump(t), filepath.Join("testdata", string(d.dialect)+".golden")
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	testenv.Equal(t, got, string(want), "the schema differs from", file+"; run this test with -update if that is meant")
	d.wantRecordedOnce(t)
}

func (d database) wantEmpty(t *testing.T) {
	t.Helper()
	testenv.Equal(t, d.dump(t), "", "something is left")
}

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		d.SetMaxOpenConns(1)
		for range 2 {
			d.wantApplied(t, false)
			d.wantEmpty(t) // Status creates nothing
			d.up(t)
			d.wantGolden(t)
			d.wantUsable(t)
			d.down(t)
			d.wantEmpty(t)
			d.down(t) // nothing to do
			d.wantEmpty(t)
		}
		must(t, d.PingContext(t.Context())) // it is the caller's, and open
	})
}

func TestTheApplicationsOwnTables(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		run(t, d.DB, `CREATE TABLE goose_db_version (version_id bigint)`, `INSERT INTO goose_db_version VALUES (1)`,
			`CREATE TABLE limiter_accounts (i integer)`, `CREATE TABLE limiter (i integer)`,
			`CREATE VIEW limiter_accounts_view AS SELECT i FROM limiter_accounts`)
		before := d.everything(t)
		d.up(t)
		d.wantUsable(t)
		d.down(t)
		d.wantUnchanged(t, before)
		testenv.Equal(t, d.count(t, `SELECT count(*) FROM goose_db_version WHERE version_id = 1`), 1, "records of the application's own version 1")
	})
}
