package migrations_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
)

func TestWrongArgumentsAreErrInvalidBeforeAnyIO(t *testing.T) {
	t.Parallel()
	closed, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil { // any I/O would fail in another way
		t.Fatal(err)
	}
	type options = []migrations.Option
	cases := []struct {
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
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for name, err := range (database{DB: c.db, dialect: c.dialect}).calls(t.Context(), c.opts...) {
				if !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: %v, want ErrInvalid with %q", name, err, c.text)
				}
			}
		})
	}
}

// Names of tables and views, wherever they stand for one. Constraints are named after their tables.
var objectName = regexp.MustCompile(`(/\* schema \*/)?\blimiter_(token_buckets|fixed_windows|overrides|remaining)\b`)

func TestEveryNameInTheFilesForPostgreSQLTakesASchema(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(migrations.FS, "*/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if len(files)%2 != 0 || len(files) == 0 {
		t.Errorf("the two dialects have %d files together", len(files))
	}
	for _, file := range files {
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range objectName.FindAllStringSubmatch(string(text), -1) {
			marked, postgres := match[1] != "", path.Dir(file) == "postgres"
			if marked != postgres {
				t.Errorf("%s: %s: marked %t, want %t", file, match[0], marked, postgres)
			}
		}
		for _, line := range []string{"-- +goose Up\n", "-- +goose Down\n"} {
			if strings.Count(string(text), line) != 1 {
				t.Errorf("%s: %q does not stand there once", file, line)
			}
		}
		if strings.Contains(string(text), "NO TRANSACTION") {
			t.Errorf("%s: runs outside a transaction, where SET LOCAL does nothing and a failure leaves half of it", file)
		}
	}
}
