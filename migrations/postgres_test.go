package migrations_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

func TestWithSchema(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		missing := d
		missing.opts = []migrations.Option{migrations.WithSchema("missing")}
		for name, err := range missing.calls(t.Context()) {
			wantMisconfigured(t, name, err, `CREATE SCHEMA "missing"`, "")
		}
		// The second is a reserved word; the third is as long as a name may be.
		for _, schema := range []string{"app", "user", strings.Repeat("s", 48)} {
			in := d.in(t, schema)
			in.up(t)
			in.wantGolden(t)
			in.wantUsable(t)
			d.wantEmpty(t) // public
			d.wantApplied(t, false)
			d.up(t)
			in.down(t)
			in.wantEmpty(t)
			in.wantApplied(t, false)
			d.wantGolden(t)
			d.down(t)
		}
	})
}

func TestHostileSettings(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		run(t, d.DB, `CREATE SCHEMA evil`, dbtest.TrapOperators("evil"),
			`CREATE TABLE evil.limiter_token_buckets (i int)`, `CREATE TABLE evil.limiter_fixed_windows (i int)`,
			`CREATE TABLE evil.limiter_goose_version (i int)`, `CREATE VIEW evil.limiter_remaining AS SELECT 1 AS i`,
			`CREATE DOMAIN evil.text AS varchar(3)`, `CREATE DOMAIN evil.bytea AS varchar(3)`,
			`CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT timestamptz 'epoch'$$`)
		evil := d
		evil.schema = "evil"
		before := evil.dump(t)
		for _, path := range []string{"evil, pg_catalog", "evil", "nowhere", ""} {
			in := d
			in.DB = d.open(t, "search_path", path, "datestyle", "German", "default_query_exec_mode", "exec")
			in.SetMaxOpenConns(1)
			in.up(t)
			in.wantApplied(t, true)
			d.wantGolden(t)
			// The checks and the view must not use the operators of evil.
			run(t, d.DB, d.insert("limiter_token_buckets", "full_at", "5", 0))
			var left int64
			if err := d.QueryRowContext(t.Context(), `SELECT remaining FROM limiter_remaining`).Scan(&left); err != nil || left != 5 {
				t.Errorf("search_path %q: the view says %d (%v), want 5", path, left, err)
			}
			var now string
			if err := in.QueryRowContext(t.Context(), `SHOW search_path`).Scan(&now); err != nil || strings.Trim(now, `"`) != path {
				t.Errorf("search_path of the caller's connection is %q (%v), was %q", now, err, path)
			}
			in.down(t)
			d.wantEmpty(t)
		}
		testenv.Equal(t, evil.dump(t), before, "schema evil")
	})
}

// The goose command line and psql leave search_path as it is. A reader of the view runs the functions
// that it calls.
func TestFilesInAHostileSchema(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		run(t, d.DB, dbtest.TrapOperators("public"))
		for _, f := range []string{
			"to_timestamp(numeric)", "to_timestamp(bigint)", "date_part(text, timestamptz)", "extract(text, timestamptz)",
			"generate_series(bigint, integer)", "generate_series(integer, bigint)", "int4send(bigint)", "clock_timestamp()",
		} {
			run(t, d.DB, `CREATE FUNCTION public.`+f+` RETURNS point LANGUAGE plpgsql AS $$BEGIN RAISE 'hijacked'; END$$`)
		}
		text, err := fs.ReadFile(migrations.FS, "postgres/00001_create_limiter_tables.sql")
		must(t, err)
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		run(t, d.DB, up, d.insert("limiter_token_buckets", "full_at", "5", 0), `SELECT * FROM limiter_remaining`)
		for i, o := range []override{
			{kind: "bucket", capacity: 5, refill: 5, period: int64(time.Minute)},
			{kind: "window", capacity: 5, period: int64(time.Minute), expires: 1},
		} {
			must(t, d.insertOverride(t, i, o))
		}
	})
}

// role creates a role with the given privileges and returns a handle that acts in it.
func (d database) role(t *testing.T, grants ...string) database {
	t.Helper()
	admin, name := d.DB, "limiter_test_"+strings.ToLower(rand.Text())
	run(t, admin, `CREATE ROLE `+name)
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + name, `DROP ROLE ` + name} {
			testenv.Equal(t, testenv.ErrorOf(admin.ExecContext(context.WithoutCancel(t.Context()), statement)), nil, statement)
		}
	})
	for _, grant := range grants {
		run(t, admin, grant+` TO `+name)
	}
	d.DB = d.open(t, "role", name)
	return d
}

func TestRoles(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		d = d.in(t, "app")
		none := d.role(t, `GRANT USAGE ON SCHEMA app`)
		up := func(d database) error { return migrations.Up(t.Context(), d.dialect, d.DB, d.opts...) }
		wantMisconfigured(t, "Up without privileges", up(none), "CREATE on schema", "42501")
		none.wantApplied(t, false)

		owner := d.role(t, `GRANT USAGE, CREATE ON SCHEMA app`)
		owner.up(t)
		d.wantGolden(t)
		wantMisconfigured(t, "Up that may not read the version table", up(none), "SELECT on", "42501")

		reader := d.role(t, `GRANT USAGE ON SCHEMA app`, `GRANT SELECT ON app.limiter_remaining, app.limiter_goose_version`)
		run(t, reader.DB, `SELECT * FROM app.limiter_remaining`)
		reader.wantApplied(t, true)
		reader.up(t) // nothing to do
		err := migrations.Down(t.Context(), d.dialect, reader.DB, d.opts...)
		wantMisconfigured(t, "Down by a role that owns nothing", err, "must own", "42501")
		owner.down(t)
		d.wantEmpty(t)
	})
}

// By the pages of a table the planner chooses between the table and its index, for which
// postgres/plan_test.go has the reason. An index of more pages would be dearer, and rows would show.
func TestPagesAfterVacuum(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		d.up(t)
		for _, described := range tables.All {
			table := described.Name
			run(t, d.DB, d.insert(table, "at", "5", 1), `DELETE FROM `+table, `VACUUM `+table, `VACUUM (FREEZE) `+table)
			var rows, pages, index int64
			err := d.QueryRowContext(t.Context(), fmt.Sprintf(`SELECT (SELECT count(*) FROM %s), pg_relation_size('%[1]s') / size, pg_relation_size('%[1]s_pkey') / size
				FROM (SELECT current_setting('block_size')::bigint AS size) AS block`, table)).Scan(&rows, &pages, &index)
			if err != nil || rows != 0 || pages < 32 || pages > 40 || index != 2 {
				t.Errorf("%s has %d rows, %d pages and %d of its index, %v; want no rows, 32 to 40 pages and 2", table, rows, pages, index, err)
			}
		}
	})
}
