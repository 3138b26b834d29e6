package tables_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestRender(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, driver, dsn, from string) {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		testenv.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		text := new(tables.Table).Render("SELECT {a 1}, {a 2}, {a 3}, {a -1}, {a -2}, {a -3}, {a #} FROM ", driver == "sqlite") + from
		want := [7]sql.Null[int64]{{V: 17, Valid: true}, {V: 1 << 62, Valid: true}, {}, {V: 1 << 62, Valid: true}, {V: 17, Valid: true}, {}, {V: 2, Valid: true}}
		var got [7]sql.Null[int64]
		err = db.QueryRowContext(t.Context(), text).Scan(&got[0], &got[1], &got[2], &got[3], &got[4], &got[5], &got[6])
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		check(t, "sqlite", ":memory:", "(SELECT x'00000000000000114000000000000000' AS a)")
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		check(t, "pgx", server.Database(t), "(SELECT '{17,4611686018427387904}'::bigint[] AS a) AS b")
	})
}
