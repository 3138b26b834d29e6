package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

func (d database) calls(ctx context.Context) map[string]error {
	_, status := migrations.Status(ctx, d.dialect, d.DB, d.opts...)
	return map[string]error{
		"Up":     migrations.Up(ctx, d.dialect, d.DB, d.opts...),
		"Status": status,
		"Down":   migrations.Down(ctx, d.dialect, d.DB, d.opts...),
	}
}

// wantMisconfigured fails the test unless err is, with the advice and the driver's error behind it.
func wantMisconfigured(t *testing.T, what string, err error, advice, driver string) {
	t.Helper()
	if !errors.Is(err, limiter.ErrMisconfigured) || !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), driver) {
		t.Errorf("%s: %v, want ErrMisconfigured with %q and %q", what, err, advice, driver)
	}
}

func TestUnusableSQLiteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	must(t, os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600))
	whole := onSQLite(t)
	whole.up(t)
	text, err := os.ReadFile(strings.TrimPrefix(whole.dsn, "file:"))
	must(t, err)
	for i := 200; i < len(text); i++ { // behind the header
		text[i] = 0xff
	}
	corrupt := filepath.Join(dir, "corrupt.db")
	must(t, os.WriteFile(corrupt, text, 0o600))
	for _, c := range []struct{ name, path, advice, driver string }{
		{"no directory", filepath.Join(dir, "no", "such.db"), "see that its directory exists", "(14)"},
		{"a directory", dir, "see that its directory exists", "(14)"},
		{"no file, to read", filepath.Join(dir, "none.db?mode=ro"), "see that its directory exists", "(14)"},
		{"no database", garbage, "not an intact SQLite database", "(26)"},
		{"half a database", corrupt, "not an intact SQLite database", "(11)"},
	} {
		for _, dialect := range []migrations.Dialect{migrations.SQLite, migrations.Postgres} {
			d := database{dialect: migrations.SQLite, dsn: "file:" + filepath.ToSlash(c.path)}
			d.DB = d.open(t)
			d.dialect = dialect
			for call, err := range d.calls(t.Context()) {
				wantMisconfigured(t, c.name+": "+call, err, c.advice, c.driver)
			}
		}
	}
}

func TestReadOnlySQLiteFile(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"mode": "ro", "_query_only": "1"} {
		d := onSQLite(t)
		run(t, d.DB, `CREATE TABLE theirs (i INTEGER)`) // so that there is a file
		readonly := d
		readonly.DB = d.open(t, name, value)
		err := migrations.Up(t.Context(), d.dialect, readonly.DB)
		wantMisconfigured(t, name+": Up", err, "the database cannot be written", "(8)")
		readonly.wantApplied(t, false)
		d.up(t)
		err = migrations.Down(t.Context(), d.dialect, readonly.DB)
		wantMisconfigured(t, name+": Down", err, "the database cannot be written", "(8)")
		readonly.wantApplied(t, true)
	}
}

func TestDatabaseOfTheOtherKind(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		other, advice, driver := d, "is this a SQLite database? For PostgreSQL pass migrations.Postgres", "SQLSTATE"
		other.dialect = migrations.SQLite
		if d.dialect == migrations.SQLite {
			other.dialect = migrations.Postgres
			advice, driver = "is this a PostgreSQL database? For SQLite pass migrations.SQLite", "pg_catalog"
		}
		for call, err := range other.calls(t.Context()) {
			wantMisconfigured(t, call, err, advice, driver)
		}
		d.wantGolden(t)
	})
}

func TestErrorsOfConnecting(t *testing.T) {
	t.Parallel()
	// No server listens on port 1.
	for _, dialect := range []migrations.Dialect{migrations.Postgres, migrations.SQLite} {
		db, err := sql.Open("pgx", "postgres://127.0.0.1:1/x?sslmode=disable")
		must(t, err)
		defer db.Close()
		for call, err := range (database{DB: db, dialect: dialect}).calls(t.Context()) {
			if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
				t.Errorf("%s: %v, want the address that it cannot connect to", call, err)
			}
			for _, class := range []error{limiter.ErrInvalid, limiter.ErrMisconfigured, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrCanceled} {
				testenv.Equal(t, errors.Is(err, class), false, call, err, "matches", class)
			}
		}
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	closed, err := sql.Open("sqlite", ":memory:")
	must(t, err)
	must(t, closed.Close()) // any I/O would fail in another way
	type options = []migrations.Option
	for _, c := range []struct {
		name    string
		dialect migrations.Dialect
		db      *sql.DB
		opts    options
		text    string
	}{
		{"no dialect", "", closed, nil, "unknown dialect"},
		{"a dialect of others", "mysql", closed, nil, `"mysql"`},
		{"no database", migrations.SQLite, nil, nil, "db is nil"},
		{"a nil option", migrations.Postgres, closed, options{migrations.WithSchema("a"), nil}, "option 1 is nil"},
		{"a schema in SQLite", migrations.SQLite, closed, options{migrations.WithSchema("a")}, "leave out WithSchema"},
		{"an empty schema", migrations.Postgres, closed, options{migrations.WithSchema("")}, "the schema's name"},
		{"a schema with SQL in it", migrations.Postgres, closed, options{migrations.WithSchema(`a"; DROP TABLE b; --`)}, "the schema's name"},
	} {
		for call, err := range (database{DB: c.db, dialect: c.dialect, opts: c.opts}).calls(t.Context()) {
			if !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s: %v, want ErrInvalid with %q", c.name, call, err, c.text)
			}
		}
	}
}
