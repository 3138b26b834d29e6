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

// dumpPostgres lists everything in a schema, one line a thing. The text of a view is left out: each
// version of PostgreSQL prints it in its own way. So is what goose's table consists of: two sessions
// that create it at once may call its sequence by another name.
const dumpPostgres = `
WITH rel AS (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND relname NOT LIKE 'limiter\_goose\_version\_%'
)
SELECT line FROM (
	SELECT relname AS t, 0 AS part, 0 AS n, relname || ': '
		|| CASE relpersistence WHEN 'p' THEN '' ELSE 'not durable ' END
		|| CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' ELSE relkind::text END
		|| coalesce(' with ' || array_to_string(reloptions, ', '), '')
		|| CASE WHEN relkind = 'i' THEN ' ' || substring(pg_get_indexdef(oid) FROM 'USING .*') ELSE '' END
		|| coalesce(' -- ' || obj_description(oid, 'pg_class'), '') AS line
	FROM rel
	UNION ALL
	SELECT relname, 1, attnum, '    ' || attname || ' ' || format_type(atttypid, atttypmod)
		|| coalesce(' COLLATE "' || (SELECT collname FROM pg_collation WHERE oid = attcollation AND collname <> 'default') || '"', '')
		|| CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
		|| coalesce(' -- ' || col_description(attrelid, attnum), '')
	FROM pg_attribute JOIN rel ON rel.oid = attrelid
	WHERE attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'v') AND relname <> 'limiter_goose_version'
	UNION ALL
	SELECT relname, 2, 0, '    CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(k.oid)
	FROM pg_constraint k JOIN rel ON rel.oid = conrelid
	WHERE contype <> 'n' AND relname <> 'limiter_goose_version'
	UNION ALL
	SELECT proname, 0, 0, proname || ': function' FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = $1
) AS lines ORDER BY t COLLATE "C", part, n, line COLLATE "C"`

// dumpSQLite lists everything in a database as it was written. What begins with sqlite_ belongs to
// SQLite itself: sqlite_sequence comes with goose's table and cannot be dropped.
const dumpSQLite = `
SELECT CASE tbl_name WHEN 'limiter_goose_version' THEN name || ': ' || type ELSE sql || ';' END
FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`

// dump describes everything that there is in the database, or in the schema.
func (d database) dump(t *testing.T) string {
	t.Helper()
	query, args := dumpSQLite, []any(nil)
	if d.dialect == migrations.Postgres {
		query, args = dumpPostgres, []any{d.schema}
	}
	rows, err := d.QueryContext(t.Context(), query, args...)
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
