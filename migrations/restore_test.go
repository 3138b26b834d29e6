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
