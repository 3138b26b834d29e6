package migrations_test

import (
	"database/sql"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/sqlimit/limiter/migrations"
)

// The statements that docs/operations.md shows can be pasted.
func TestTheStatementsOfTheOperationsPageSetAnOverride(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	statements := regexp.MustCompile(`(?s)INSERT INTO limiter_overrides.*?;`).FindAllString(string(page), -1)
	removals := regexp.MustCompile(`DELETE FROM limiter_overrides .*;`).FindAllString(string(page), -1)
	if len(statements) != 2 || len(removals) != 2 {
		t.Fatalf("docs/operations.md has the statements %q and %q, want two of each, one for each database", statements, removals)
	}
	onEach(t, func(t *testing.T, d database) {
		insert, remove := statements[0], removals[0]
		if d.dialect == migrations.SQLite {
			insert, remove = statements[1], removals[1]
		}
		d.up(t)
		run(t, d.DB, insert, insert) // the second replaces the first
		var name, kind string
		var key []byte
		var capacity, period, expires int64
		var refill sql.NullInt64
		err := d.QueryRowContext(t.Context(), `SELECT limiter, key, kind, capacity, refill, period, expires_at FROM limiter_overrides`).
			Scan(&name, &key, &kind, &capacity, &refill, &period, &expires)
		if err != nil || name != "api" || string(key) != "customer-42" || kind != "bucket" || capacity != 1000 || refill.Int64 != 1000 || period != int64(time.Minute) {
			t.Errorf("%s: %q %q %q %d %v %d, %v", insert, name, key, kind, capacity, refill, period, err)
		}
		if in := time.Until(time.Unix(0, expires)); in < 23*time.Hour || in > 25*time.Hour {
			t.Errorf("the override ends in %v, want a day", in)
		}
		run(t, d.DB, remove)
		var n int
		if err := d.QueryRowContext(t.Context(), `SELECT count(*) FROM limiter_overrides`).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d overrides after %s, %v; want none", n, remove, err)
		}
	})
}
