package migrations_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// state is what an operator or a restored backup leaves behind.
type state struct {
	name  string
	first bool // whether Up has run before
	make  []string
	says  string // a pattern for the error of Up, "" if Up succeeds
}

func records(versions ...string) []string {
	statements := []string{`DELETE FROM limiter_goose_version`}
	for _, v := range versions {
		statements = append(statements, `INSERT INTO limiter_goose_version (version_id, is_applied) VALUES (`+v+`, true)`)
	}
	return statements
}

// overridesTable replaces the table limiter_overrides. edits are pairs of a text and the one that replaces it.
func overridesTable(edits ...string) []string {
	create := `CREATE TABLE limiter_overrides (capacity bigint, refill bigint, period bigint, expires_at bigint,
		limiter text, key bytea, kind text, note text, PRIMARY KEY (limiter, key))`
	return []string{`DROP TABLE limiter_overrides`, strings.NewReplacer(edits...).Replace(create)}
}

func states() []state {
	const (
		unrecord = `DROP TABLE limiter_goose_version`
		tables   = `DROP VIEW limiter_remaining; DROP TABLE limiter_overrides; DROP TABLE limiter_sliding_windows; DROP TABLE limiter_leases; DROP TABLE limiter_fixed_windows; DROP TABLE limiter_token_buckets`
		all      = "records no migration: it has table limiter_fixed_windows, table limiter_leases, table limiter_overrides, view limiter_remaining, table limiter_sliding_windows, table limiter_token_buckets; "
	)
	return []state{
		{"goose was interrupted after it created its table", true, append(records(), tables), ""},
		{"goose was interrupted after it recorded version 0", true, append(records("0"), tables), ""},
		{"version 0 is not recorded", true, append(records("1"), records("1", "0")...), ""},
		{"nothing that the stores notice", true, append(overridesTable("note text", "note text, more text, most text DEFAULT '' NOT NULL"),
			`CREATE INDEX theirs ON limiter_fixed_windows (at)`, `DROP VIEW limiter_remaining`), ""},
		{"a newer version", true, append(records("0", "1", "99"), `ALTER TABLE limiter_fixed_windows RENAME TO limiter_moved`,
			`CREATE TABLE limiter_fixed_windows AS SELECT *, 1 AS more FROM limiter_moved`), ""},

		{"the version table is lost", true, []string{unrecord}, all},
		{"the rows of the version table are lost", true, records(), all},
		{"version 0 alone is recorded", true, records("0"), all},
		{"a version that is not applied", true, append(records("0"), tables, `INSERT INTO limiter_goose_version (version_id, is_applied) VALUES (1, false)`), "row of version 1 that is not applied"},
		{
			"an application's view, table and index", false,
			[]string{
				`CREATE VIEW limiter_token_buckets AS SELECT 1 AS i`, `CREATE TABLE limiter_overrides (key text)`,
				`CREATE TABLE theirs (i integer)`, `CREATE INDEX limiter_remaining ON theirs (i)`,
			},
			"it has table limiter_overrides, index limiter_remaining, view limiter_token_buckets; " +
				"column limiter_overrides.capacity is missing; .*key is text, not (bytea|BLOB); .*table limiter_token_buckets is missing; ",
		},
		{
			"a version table that is not goose's", false,
			[]string{`CREATE TABLE limiter_goose_version (theirs integer)`},
			"limiter_goose_version is not goose's: drop or rename it",
		},
		{
			"all tables are missing", true,
			[]string{tables},
			"records version 1: table limiter_fixed_windows is missing; table limiter_leases is missing; table limiter_overrides is missing; table limiter_sliding_windows is missing; table limiter_token_buckets is missing; ",
		},
		{
			"a table with other columns and another primary key", true,
			overridesTable(", note text", ", more text NOT NULL", "expires_at bigint", "expires_at text", "limiter, key", "key, limiter"),
			"records version 1: column limiter_overrides.expires_at is text, not (bigint|INTEGER); column limiter_overrides.note is missing; " +
				`column limiter_overrides.more is not limiter's, and must have a value; the primary key of table limiter_overrides is not \(limiter, key\)`,
		},
		{"no primary key", true, overridesTable(", PRIMARY KEY (limiter, key)", ""), `the primary key of table limiter_overrides is not \(limiter, key\)`},
		{
			"a newer version without a column", true, append(records("0", "1", "99"), overridesTable(", note text", "")...),
			"records version 99: column limiter_overrides.note is missing; ",
		},
	}
}

// remedy matches the statements in an error that remove what Up found.
var remedy = regexp.MustCompile(`\((DROP [^)]*)\)`)

func TestUpOnAnyState(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, d database, c state) {
		if c.first {
			d.up(t)
		}
		for _, s := range c.make {
			if d.dialect == migrations.SQLite {
				s = strings.NewReplacer("bigint", "INTEGER", "bytea", "BLOB").Replace(s)
			}
			run(t, d.DB, s)
		}
		before := d.everything(t)
		err := migrations.Up(t.Context(), d.dialect, d.DB, d.opts...)
		if c.says == "" {
			must(t, err)
			d.wantUsable(t)
			return
		}
		if !errors.Is(err, limiter.ErrMisconfigured) || !regexp.MustCompile("(?i)"+c.says).MatchString(err.Error()) {
			t.Fatalf("Up: %v, want ErrMisconfigured with %q", err, c.says)
		}
		d.wantUnchanged(t, before)
		if strings.Contains(before, "limiter_goose_version") {
			testenv.ErrorIs(t, migrations.Down(t.Context(), d.dialect, d.DB, d.opts...), limiter.ErrMisconfigured)
			d.wantUnchanged(t, before)
		}
		// The advice helps.
		statements := `DROP TABLE limiter_goose_version`
		if found := remedy.FindStringSubmatch(err.Error()); found != nil {
			statements = found[1]
		}
		run(t, d.DB, statements)
		d.up(t)
		d.wantUsable(t)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		for _, c := range states() {
			t.Run(c.name, func(t *testing.T) { test(t, onSQLite(t), c) })
		}
	})
	onPostgres(t, func(t *testing.T, d database) {
		for _, c := range states() {
			t.Run(c.name, func(t *testing.T) {
				run(t, d.DB, `DROP SCHEMA IF EXISTS "user" CASCADE`) // a reserved word
				test(t, d.in(t, "user"), c)
			})
		}
	})
}

// Up sees no types of PostgreSQL, and Down does not look for the view.
func TestErrorsOfOtherObjects(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect == migrations.Postgres {
			run(t, d.DB, `CREATE TYPE limiter_fixed_windows AS ENUM ('theirs')`)
			before := d.everything(t)
			wantMisconfigured(t, "Up", migrations.Up(t.Context(), d.dialect, d.DB), "drop or rename it", "already")
			d.wantUnchanged(t, before)
			run(t, d.DB, `DROP TYPE limiter_fixed_windows`)
		}
		d.up(t)
		run(t, d.DB, `DROP VIEW limiter_remaining`)
		before := d.everything(t)
		err := migrations.Down(t.Context(), d.dialect, d.DB)
		wantMisconfigured(t, "Down", err, "as the migrations made them", "limiter_remaining")
		d.wantUnchanged(t, before)
		run(t, d.DB, remedy.FindStringSubmatch(err.Error())[1])
		d.wantEmpty(t)
	})
}

// release returns the migrations of a release that has more of them than this one.
func release(t *testing.T, more ...string) migrations.Option {
	t.Helper()
	files := fstest.MapFS{}
	for _, dialect := range []migrations.Dialect{migrations.Postgres, migrations.SQLite} {
		text, err := fs.ReadFile(migrations.FS, string(dialect)+"/00001_create_limiter_tables.sql")
		must(t, err)
		files[string(dialect)+"/00001_create_limiter_tables.sql"] = &fstest.MapFile{Data: text}
		for i, text := range more {
			if dialect == migrations.SQLite {
				text = strings.ReplaceAll(text, "/* schema */", "")
			}
			files[string(dialect)+"/0000"+string(rune('2'+i))+"_more.sql"] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return migrations.From(files)
}

func TestReleases(t *testing.T) {
	t.Parallel()
	const (
		second = `-- +goose Up
CREATE TABLE /* schema */limiter_notes (limiter text NOT NULL, note text NOT NULL);
ALTER TABLE /* schema */limiter_token_buckets ADD COLUMN note text;

-- +goose Down
ALTER TABLE /* schema */limiter_token_buckets DROP COLUMN note;
DROP TABLE /* schema */limiter_notes;
`
		third  = "-- +goose Up\nINSERT INTO /* schema */limiter_notes VALUES ('l', 'n');\n\n-- +goose Down\n"
		broken = "-- +goose Up\nDROP TABLE /* schema */limiter_notes;\nSELECT nothing;\n\n-- +goose Down\n"
	)
	onEach(t, func(t *testing.T, d database) {
		later := d
		d.up(t)
		for _, files := range [][]string{{second}, {second, third}, {second, third}} {
			later.opts = []migrations.Option{release(t, files...)}
			later.up(t)
			later.wantUsable(t)
			d.up(t) // an older release changes nothing
		}
		testenv.Equal(t, d.count(t, `SELECT count(*) FROM limiter_notes`), 1, "runs of the third migration")
		before := d.everything(t)
		wantMisconfigured(t, "Down", migrations.Down(t.Context(), d.dialect, d.DB), "version 3", "newer release")
		err := migrations.Up(t.Context(), d.dialect, d.DB, release(t, second, third, broken))
		wantMisconfigured(t, "Up", err, "as the migrations made them", "version:4")
		d.wantUnchanged(t, before)
		later.down(t)
		d.wantEmpty(t)
	})
}

func TestRestore(t *testing.T) {
	t.Parallel()
	programs, major, err := testenv.PostgreSQL(t.Context())
	if err != nil {
		testenv.Unavailable(t, "postgres", err)
	}
	newest, err := strconv.Atoi(major)
	must(t, err)
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		if server.Version() > newest {
			t.Skipf("pg_dump of PostgreSQL %s cannot read from version %d", major, server.Version())
		}
		open := func(t *testing.T) database {
			t.Helper()
			d := database{dialect: migrations.Postgres, dsn: server.Database(t)}
			d.DB = d.open(t)
			return d
		}
		source := open(t).in(t, "user")
		source.up(t)
		run(t, source.DB, source.insert("limiter_token_buckets", "at", "5", 1))
		for _, c := range []struct {
			name    string
			exclude string // an argument of pg_dump
			says    string // Up's error, "" if it succeeds
			repair  string // makes Up succeed
		}{
			{"with its data", "--exclude-table=none", "", "SELECT 1"},
			{
				"without the rows of goose's table", "--exclude-table-data=*.limiter_goose_version", "records no migration",
				"INSERT INTO limiter_goose_version (version_id, is_applied) VALUES (0, true), (1, true)", // from docs/operations.md
			},
		} {
			t.Run(c.name, func(t *testing.T) {
				d := open(t)
				file := filepath.Join(t.TempDir(), "dump")
				for _, command := range [][]string{
					{"pg_dump", "--format=custom", "--file=" + file, c.exclude, source.dsn},
					{"pg_restore", "--exit-on-error", "--dbname=" + d.dsn, file},
				} {
					must(t, testenv.ErrorOf(output(exec.CommandContext(t.Context(), filepath.Join(programs, command[0]), command[1:]...))))
				}
				d = d.in(t, "user")
				if c.says != "" {
					err := migrations.Up(t.Context(), d.dialect, d.DB, d.opts...)
					wantMisconfigured(t, "Up", err, c.says, "drop them with the state of every key")
				}
				run(t, d.DB, c.repair)
				d.up(t)
				d.wantUsable(t)
				d.wantGolden(t)
				testenv.Equal(t, d.count(t, `SELECT count(*) FROM limiter_token_buckets`), 1, "rows after Up")
			})
		}
	})
}
