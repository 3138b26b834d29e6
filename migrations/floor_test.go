package migrations_test

import (
	"fmt"
	"testing"

	"github.com/sqlimit/limiter/internal/tables"
)

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
