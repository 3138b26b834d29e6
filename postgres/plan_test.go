package postgres_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/postgres"
)

// calls is what each statement that finds its row by the key is called with; %s stands
// for the key.
var calls = map[string]string{
	"bucketTake":   `'l', %s, 1000, 1, 1000, NULL, 1000`,
	"bucketRead":   `'l', %s`,
	"bucketSwap":   `'l', %s, 2, 2, 1000, 1, 1, 1, 1000, 1`,
	"bucketRefund": `'l', %s, 1, NULL`,
	"bucketCancel": `'l', %s, 1, 1, 1000, 1, 1, NULL`,
	"bucketReset":  `'l', %s`,
	"bucketLock":   `'l', %s`,
	"windowTake":   `'l', %s, 1000000, 1, 1, NULL, 2000000000, 0`,
	"windowRead":   `'l', %s`,
	"windowSwap":   `'l', %s, 1, 1, 1, 1000000, 1, 1, 1, 1, 1000000, 1`,
	"windowRefund": `'l', %s, 1, NULL, 1000000, 1`,
	"windowCancel": `'l', %s, 1, 1, 1000000, 1, NULL`,
	"windowReset":  `'l', %s`,
	"windowLock":   `'l', %s`,
	"windowCount":  `'l', %s, 1000000, 1, 1, NULL, 2000000000, 0`,
	"allBucket":    `NULL, 'l', %s, 1000, 1, 1000, 1000`,
	"allWindow":    `NULL, 'l', %s, 1000000, 1, 1, 2000000000`,
	"allBoth":      `NULL, 'l', %[1]s, 1000, 1, 1000, 1000, 'm', %[1]s, 1000, 1, 1000, 1000, 'l', %[1]s, 1000000, 1, 1, 2000000000, 'm', %[1]s, 1000000, 1, 1, 2000000000`,
	"allMost":      `NULL, 'l', %[1]s, 1000, 1, 1000, 1000, 'm', %[1]s, 1000, 1, 1000, 1000, 'n', %[1]s, 1000, 1, 1000, 1000, 'o', %[1]s, 1000, 1, 1000, 1000, 'l', %[1]s, 1000000, 1, 1, 2000000000, 'm', %[1]s, 1000000, 1, 1, 2000000000, 'n', %[1]s, 1000000, 1, 1, 2000000000, 'o', %[1]s, 1000000, 1, 1, 2000000000`,
	"bucketTakes":  `'{l}', array[%s]::bytea[], '{1000}', '{1}', '{1000}', '{0}', '{1}', '1s'`,
	"windowTakes":  `'{l}', array[%s]::bytea[], '{1000000}', '{1}', '{1}', '{0}', '{1}', '1s'`,
}

// otherwise are the statements that look for no key.
var otherwise = []string{
	"bucketInsert", "windowInsert", "bucketSweep", "windowSweep", "bucketStart", "windowStart", "check", "version",
	"bucketAdd", "windowAdd", "bucketClock", "windowClock", "overrides",
}

// node is what EXPLAIN tells of a part of a plan.
type node struct {
	Type     string   `json:"Node Type"`
	Relation string   `json:"Relation Name"`
	Cond     string   `json:"Index Cond"`
	Arbiters []string `json:"Conflict Arbiter Indexes"`
	Plans    []node
}

// byKey reports whether all that the plan reads of a table it finds by the primary key,
// and that this is something. An Index Scan alone does not say so: it may go through all
// of the index.
func (n node) byKey() bool {
	found, other := n.scans()
	return found > 0 && other == 0
}

func (n node) scans() (byKey, other int) {
	for _, p := range n.Plans {
		k, o := p.scans()
		byKey, other = byKey+k, other+o
	}
	switch {
	case !strings.HasPrefix(n.Relation, "limiter_"):
	case n.Type == "Index Scan" && strings.Contains(n.Cond, "(limiter = ") && strings.Contains(n.Cond, "(key = "):
		byKey++
	case n.Type != "ModifyTable":
		other++
	case len(n.Arbiters) > 0:
		byKey++
	}
	return byKey, other
}

// session is a connection that has prepared statements.
type session struct{ *pgx.Conn }

// prepare makes a session that plans each of calls once, as pgx makes one of a
// connection that carries out a statement for the sixth time.
func prepare(t *testing.T, d *database, schema string, settings ...string) session {
	t.Helper()
	s := session{connect(t, d.dsn)}
	for _, setting := range settings {
		s.exec(t, "SET "+setting)
	}
	texts := postgres.Statements(schema, false)
	for name := range calls {
		s.exec(t, "PREPARE "+name+" AS "+texts[name])
		s.explain(t, name, "k000000")
	}
	return s
}

func (s session) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := s.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// explain returns the plan of a prepared statement, and its text.
func (s session) explain(t *testing.T, name, key string) (plan node, text string) {
	t.Helper()
	args := fmt.Sprintf(calls[name], fmt.Sprintf(`'\x%x'`, key))
	err := s.QueryRow(t.Context(), fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %s(%s)", name, args)).Scan(&text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var all []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
		t.Fatalf("%s: %d plans, %v", name, len(all), err)
	}
	return all[0].Plan, text
}

// vacuum tells the planner what is in the tables.
func (d *database) vacuum(t *testing.T, schema string) {
	t.Helper()
	d.exec(t, fmt.Sprintf("VACUUM %s.limiter_token_buckets, %[1]s.limiter_fixed_windows", schema))
}

func TestPlansAreWatchedOfEveryStatement(t *testing.T) {
	t.Parallel()
	for name := range postgres.Statements("public", false) {
		if _, ok := calls[name]; ok == slices.Contains(otherwise, name) {
			t.Errorf("%s has to be in one of calls and otherwise", name)
		}
	}
}

func TestPlansFindTheRowByThePrimaryKey(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		d.rows(t, schema, "k", 10_000, "0")
		d.exec(t, fmt.Sprintf("ANALYZE %s.limiter_token_buckets, %[1]s.limiter_fixed_windows", schema))
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			s := prepare(t, d, schema, "plan_cache_mode = "+mode)
			for name := range calls {
				if plan, text := s.explain(t, name, "k000007"); !plan.byKey() {
					t.Errorf("%s, %s:\n%s", name, mode, text)
				}
			}
		}
	})
}

// These plans stay while the tables grow. The planner takes an empty table for one of a
// row, and in a table of one row to go through all of the index costs no more than to
// look for a key in it.
func TestPlansMadeForTablesThatWereNextToEmptyFindTheRowByThePrimaryKey(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for rows := range 3 {
			if rows > 0 {
				d.rows(t, schema, fmt.Sprint(rows), 1, "0")
			}
			d.vacuum(t, schema)
			for _, cost := range []string{"4", "1.1", "10"} {
				s := prepare(t, d, schema, "plan_cache_mode = force_generic_plan", "random_page_cost = "+cost)
				for _, name := range slices.Sorted(maps.Keys(calls)) {
					if plan, text := s.explain(t, name, "k000000"); !plan.byKey() {
						t.Errorf("%s, %d rows, random_page_cost %s:\n%s", name, rows, cost, text)
					}
				}
			}
		}
	})
}
