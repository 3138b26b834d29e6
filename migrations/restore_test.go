package migrations_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// restored is a database that pg_restore has made.
type restored struct {
	name  string
	dump  []string // arguments of pg_dump
	check string   // what Check says before Up
	rows  int
}

func TestUpAdoptsWhatPgRestoreHasMade(t *testing.T) {
	t.Parallel()
	programs, major, err := testenv.PostgreSQL(t.Context())
	if err != nil {
		testenv.Unavailable(t, "postgres", err)
	}
	newest, err := strconv.Atoi(major)
	if err != nil {
		t.Fatal(err)
	}
	cases := []restored{
		{"everything", nil, "", 1},
		{"the schema alone", []string{"--schema-only"}, unrecorded, 0},
		{"all but the rows of goose", []string{"--exclude-table-data=*.limiter_goose_version"}, unrecorded, 1},
		{"all but the table of goose", []string{"--exclude-table=*.limiter_goose_version"}, "", 1},
		{"the table of goose alone", []string{"--table=*.limiter_goose_version"}, "migrations.Up", 0},
	}
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		if server.Version() > newest {
			t.Skipf("pg_dump of PostgreSQL %s cannot read from version %d", major, server.Version())
		}
		open := func(t *testing.T, schema string) site {
			t.Helper()
			return site{database: database{dialect: migrations.Postgres, dsn: server.Database(t)}}.in(t, schema)
		}
		for schema, cases := range map[string][]restored{"public": cases[1:2], "user": cases} {
			source, s := open(t, schema), open(t, schema)
			run(t, source.DB, `CREATE SCHEMA IF NOT EXISTS "`+schema+`"`)
			mustUp(t, source)
			run(t, source.DB, source.insert("limiter_token_buckets", "at", "5", 1))
			for _, c := range cases {
				t.Run(schema+"/"+c.name, func(t *testing.T) {
					file := filepath.Join(t.TempDir(), "dump")
					if schema != "public" {
						run(t, s.DB, `DROP SCHEMA IF EXISTS "`+schema+`" CASCADE`)
					}
					if c.name == "the table of goose alone" {
						run(t, s.DB, `CREATE SCHEMA "`+schema+`"`) // --table leaves out the schema
					}
					for _, command := range [][]string{
						append(append([]string{"pg_dump", "--format=custom", "--file=" + file}, c.dump...), source.dsn),
						{"pg_restore", "--exit-on-error", "--dbname=" + s.dsn, file},
					} {
						if _, err := output(exec.CommandContext(t.Context(), filepath.Join(programs, command[0]), command[1:]...)); err != nil {
							t.Fatal(err)
						}
					}
					s.wantCheck(t, c.check)
					mustUp(t, s)
					s.wantUsable(t)
					s.wantGolden(t)
					var rows int
					if err := s.QueryRowContext(t.Context(), `SELECT count(*) FROM limiter_token_buckets`).Scan(&rows); err != nil || rows != c.rows {
						t.Errorf("%d rows after Up (%v), want %d", rows, err, c.rows)
					}
				})
			}
		}
	})
}
