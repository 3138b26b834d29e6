package postgres_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/postgres"
)

// byNoKey are the statements that look for no key.
var byNoKey = regexp.MustCompile("(Insert|Sweep|Add|Clock)$|^(check|version|overrides)$")

// node is what EXPLAIN tells of a part of a plan.
type node struct {
	Type     string   `json:"Node Type"`
	Relation string   `json:"Relation Name"`
	Cond     string   `json:"Index Cond"`
	Recheck  string   `json:"Recheck Cond"`
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
	case n.Type == "Index Scan" && ofKey(n.Cond), n.Type == "Bitmap Heap Scan" && ofKey(n.Recheck):
		byKey++
	case n.Type != "ModifyTable":
		other++
	case len(n.Arbiters) > 0:
		byKey++
	}
	return byKey, other
}

// ofKey reports whether a condition names both columns of the primary key.
func ofKey(cond string) bool {
	return strings.Contains(cond, "(limiter = ") && strings.Contains(cond, "(key = ")
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
	args := `'(8,0)', '(16,0)', 4000, 3600000000000, 'pg_class'` // of a sweep
	if call, ok := calls[name]; ok {
		args = fmt.Sprintf(call, fmt.Sprintf(`'\x%x'`, key))
	}
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
	d.exec(t, "VACUUM "+allTables(schema))
}

func TestPlansOfEveryStatement(t *testing.T) {
	t.Parallel()
	for name := range postgres.Statements("public", false) {
		if _, ok := calls[name]; ok == byNoKey.MatchString(name) {
			t.Errorf("%s has to be in one of calls and byNoKey", name)
		}
	}
}

// The plans for few rows stay while the tables grow. The planner counts one row for an empty table. To read the
// whole index of such a table costs no more than to look for a key in it.
func TestPlansUseThePrimaryKey(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		const custom, generic = "plan_cache_mode = force_custom_plan", "plan_cache_mode = force_generic_plan"
		const cost = "random_page_cost = "
		few := [][]string{{generic, cost + "4"}, {generic, cost + "1.1"}, {generic, cost + "10"}}
		many := [][]string{{custom}, {generic}}
		for i, c := range []struct {
			add      int
			stats    string
			sessions [][]string // their settings
		}{{0, "VACUUM ", few}, {1, "VACUUM ", few}, {1, "VACUUM ", few}, {10_000, "ANALYZE ", many}} {
			d.rows(t, schema, fmt.Sprint(i), c.add, "0")
			d.exec(t, c.stats+allTables(schema))
			for _, settings := range c.sessions {
				s := prepare(t, d, schema, settings...)
				for _, name := range slices.Sorted(maps.Keys(calls)) {
					if plan, text := s.explain(t, name, "k000000"); !plan.byKey() {
						t.Errorf("%s, %d rows more, %v:\n%s", name, c.add, settings, text)
					}
				}
			}
		}
	})
}

func TestPlanOfASweep(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, rows := range []int{0, 1, 30_000} {
			schema := d.schema(t)
			if rows > 0 {
				d.rows(t, schema, "k", rows, "2 hours")
			}
			d.vacuum(t, schema)
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				s := session{connect(t, d.dsn)}
				s.exec(t, "SET plan_cache_mode = "+mode)
				for _, name := range []string{"bucketSweep", "windowSweep"} {
					s.exec(t, "PREPARE "+name+" AS "+postgres.Statements(schema, false)[name])
					plan, text := s.explain(t, name, "")
					if scans := plan.tables(); len(scans) != 2 || scans[0] != "Tid Range Scan" || !strings.HasPrefix(scans[1], "Tid ") {
						t.Errorf("%s, %s, %d rows: %q:\n%s", name, mode, rows, scans, text)
					}
				}
			}
		}
	})
}

// tables returns how the plan reads its tables.
func (n node) tables() (scans []string) {
	for _, p := range n.Plans {
		scans = append(scans, p.tables()...)
	}
	if strings.HasPrefix(n.Relation, "limiter_") && n.Type != "ModifyTable" {
		scans = append(scans, n.Type)
	}
	return scans
}
