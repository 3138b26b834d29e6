package postgres_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// byNoKey are the statements that look for no key.
var byNoKey = regexp.MustCompile("(Insert|Sweep|Add|Clock|KeyLock)$|^(check|version|overrides)$")

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

// argument is SQL for a parameter of each type.
var argument = map[uint32]string{
	pgtype.TextOID: "'l'", pgtype.ByteaOID: "'k000000'", pgtype.Int8OID: "1",
	pgtype.TextArrayOID: "'{l}'", pgtype.ByteaArrayOID: "'{k000000}'", pgtype.Int8ArrayOID: "'{1}'",
}

// explain returns how a session with these settings executes the statements whose names match, as JSON. A generic
// plan is that of a connection which executes a statement for the sixth time.
func (d *database) explain(t *testing.T, schema string, named func(name string) bool, settings ...string) map[string]string {
	t.Helper()
	conn, plans := connect(t, d.dsn), map[string]string{}
	for _, setting := range settings {
		must(t, testenv.ErrorOf(conn.Exec(t.Context(), "SET "+setting)))
	}
	for name, text := range postgres.Statements(schema, false) {
		if !named(name) {
			continue
		}
		prepared, err := conn.Prepare(t.Context(), name, text)
		must(t, err)
		args := []string{"'(8,0)'", "'(16,0)'", "4000", "3600000000000", "'pg_class'"} // of a sweep
		if !strings.HasSuffix(name, "Sweep") {
			args = nil
			for _, oid := range prepared.ParamOIDs {
				args = append(args, argument[oid])
			}
		}
		var plan string
		query := fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %q(%s)", name, strings.Join(args, ", "))
		if err := conn.QueryRow(t.Context(), query).Scan(&plan); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		plans[name] = plan
	}
	return plans
}

// vacuum tells the planner what is in the tables.
func (d *database) vacuum(t *testing.T, schema string) {
	t.Helper()
	d.exec(t, "VACUUM "+allTables(schema))
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
				for name, text := range d.explain(t, schema, func(name string) bool { return !byNoKey.MatchString(name) }, settings...) {
					var plans [1]struct{ Plan node }
					if must(t, json.Unmarshal([]byte(text), &plans)); !plans[0].Plan.byKey() {
						t.Errorf("%s, %d rows more, %v:\n%s", name, c.add, settings, text)
					}
				}
			}
		}
	})
}

// reads is how a plan reads tables, or sorts.
var reads = regexp.MustCompile(`"(Seq|Tid|Index|Bitmap)[^"]* Scan"|"[^"]*Sort"`)

func TestPlanOfASweep(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, rows := range []int{0, 1, 30_000} {
			schema := d.schema(t)
			if rows > 0 {
				d.rows(t, schema, "k", rows, "2 hours")
			}
			d.vacuum(t, schema)
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				sweeps := func(name string) bool { return name == "bucketSweep" || name == "windowSweep" }
				for name, text := range d.explain(t, schema, sweeps, "plan_cache_mode = "+mode) {
					scans := reads.FindAllString(text, -1) // page by page
					if len(scans) != 2 || scans[0] != `"Tid Range Scan"` || !strings.HasPrefix(scans[1], `"Tid `) {
						t.Errorf("%s, %s, %d rows: %q:\n%s", name, mode, rows, scans, text)
					}
				}
			}
		}
	})
}
