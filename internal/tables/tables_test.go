package tables_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/tables"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestRender(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, driver, dsn, from string) {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		text := (&tables.Table{List: "counts"}).Render("SELECT {list 1}, {list 2}, {list 3} FROM ", driver == "sqlite") + from
		var first, second, third sql.NullInt64
		if err := db.QueryRowContext(t.Context(), text).Scan(&first, &second, &third); err != nil || first.Int64 != 17 || second.Int64 != 1<<62 || third.Valid {
			t.Errorf("%s: %v, %v, %v, %v; want 17, 2^62, NULL", text, first, second, third, err)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		check(t, "sqlite", ":memory:", "(SELECT x'00000000000000114000000000000000' AS counts)")
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		check(t, "pgx", server.Database(t), "(SELECT '{17,4611686018427387904}'::bigint[] AS counts) AS b")
	})
}
