package dashboards_test

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// tables are the rows that each panel shows of what fill writes.
var tables = map[string]struct {
	columns string
	rows    int
	holds   string // in the first row
}{
	"Limiters":                    {"limiter policy keys exhausted", 2, "api|token bucket|3|1"},
	"Keys by what they have left": {"left keys", 4, "0 to 10 %|1"},
	"Tables":                      {"table rows dead_rows hot_updates last_autovacuum", len(migrations.Tables()), "limiter_"},
	"Keys with the least left":    {"limiter key policy remaining lim percent_left resets_at", 4, `api|empty|token bucket|0|10|0.0|`},
	"Overrides in force":          {"limiter key kind capacity note expires_at", 2, `api|\000\377|bucket|5|a note|`},
}

// fill writes rows of two limiters, and overrides of two. One key is not text.
func fill(t *testing.T, conn *pgx.Conn, dsn string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	testenv.Must(t, err)
	defer db.Close()
	testenv.Must(t, migrations.Up(t.Context(), migrations.Postgres, db))
	store, err := postgres.Open(dsn)
	testenv.Must(t, err)
	defer func() { _ = store.Close() }()
	api, err := limiter.New(store, "api", limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Hour}, limiter.WithTimeout(time.Minute))
	testenv.Must(t, err)
	day, err := limiter.New(store, "day", limiter.FixedWindow{Limit: 3, Window: 365 * 24 * time.Hour}, limiter.WithTimeout(time.Minute))
	testenv.Must(t, err)
	for _, take := range []struct {
		l   *limiter.Limiter
		key string
		n   int64
	}{{api, "empty", 10}, {api, "half", 5}, {api, "\x00\xff", 1}, {day, "one left", 2}} {
		if res, err := take.l.AllowN(t.Context(), take.key, take.n); err != nil || !res.Allowed {
			t.Fatalf("AllowN(%q) = %+v, %v", take.key, res, err)
		}
	}
	query(t, conn, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, note, expires_at)
		VALUES ('api', '\x00ff', 'bucket', 5, 5, 60000000000, 'a note', NULL), ('api', 'past', 'window', 5, NULL, 60000000000, NULL, 1),
			('new', 'key', 'limit', 9, NULL, NULL, NULL, NULL); CREATE SCHEMA other; CREATE TABLE other.limiter_leases ()`)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		dsn := server.Database(t)
		conn, err := pgx.Connect(t.Context(), dsn)
		testenv.Must(t, err)
		fill(t, conn, dsn)
		t.Cleanup(func() { // roles belong to the server, not to the database
			query(t, conn, "RESET ROLE; DROP OWNED BY limiter_dashboards; DROP ROLE limiter_dashboards")
			_ = conn.Close(context.WithoutCancel(t.Context()))
		})
		// The role has what docs/operations.md says that Grafana needs.
		query(t, conn, "CREATE ROLE limiter_dashboards; GRANT USAGE ON SCHEMA public TO limiter_dashboards; "+
			"GRANT SELECT ON limiter_remaining, limiter_overrides TO limiter_dashboards")
		for _, table := range migrations.Tables() {
			query(t, conn, "GRANT SELECT ON "+table.Name+" TO limiter_dashboards")
		}
		query(t, conn, "SET ROLE limiter_dashboards")
		d := read(t, "keys.json")
		names := ""
		for _, v := range d.Templating.List {
			if v.Name == "limiter" {
				names = v.Definition
			}
		}
		_, limiters := query(t, conn, names)
		if want := []string{"api", "day", "new"}; !slices.Equal(limiters, want) {
			t.Fatalf("the variable has the limiters %q, want %q", limiters, want)
		}
		chosen := "'" + strings.Join(limiters, "','") + "'" // as Grafana's sqlstring has it
		for _, p := range d.Panels {
			want, ok := tables[p.Title]
			if !ok {
				t.Errorf("no rows are known of %q", p.Title)
			}
			columns, rows := query(t, conn, strings.ReplaceAll(p.Targets[0].RawSQL, "${limiter:sqlstring}", chosen))
			if columns != want.columns || len(rows) != want.rows || !strings.HasPrefix(rows[0], want.holds) {
				t.Errorf("%q has the columns %s and the rows %q, want %+v", p.Title, columns, rows, want)
			}
			// Without any limiter, Grafana puts nothing in the place of the variable.
			query(t, conn, strings.ReplaceAll(p.Targets[0].RawSQL, "${limiter:sqlstring}", ""))
		}
	})
}

// query runs statements, also after the end of the test. It returns the names of the columns of the first,
// and its rows with "|" between values.
func query(t *testing.T, conn *pgx.Conn, text string) (columns string, lines []string) {
	t.Helper()
	results, err := conn.PgConn().Exec(context.WithoutCancel(t.Context()), text).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var names []string
	for _, column := range results[0].FieldDescriptions {
		names = append(names, column.Name)
	}
	for _, row := range results[0].Rows {
		lines = append(lines, string(bytes.Join(row, []byte("|"))))
	}
	return strings.Join(names, " "), lines
}
