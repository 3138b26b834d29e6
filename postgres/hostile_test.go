package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/memory"
)

// shadow makes a schema with things of the names that the statements use.
func (d *database) shadow(t *testing.T) (schema string) {
	t.Helper()
	schema = fmt.Sprintf("evil%d", schemas.Add(1))
	d.exec(t, "CREATE SCHEMA "+schema)
	for _, sql := range []string{
		`CREATE FUNCTION %s.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'`,
		`CREATE FUNCTION %s.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END'`,
		`CREATE FUNCTION %s.to_regclass(text) RETURNS regclass LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END'`,
		`CREATE FUNCTION %s.has_table_privilege(oid, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END'`,
		`CREATE FUNCTION %s.extract(text, timestamptz) RETURNS numeric LANGUAGE sql AS 'SELECT 0::numeric'`,
		`CREATE FUNCTION %s.fail(bigint) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END'`,
		`CREATE AGGREGATE %s.max(bigint) (SFUNC = int8larger, STYPE = bigint, FINALFUNC = %[1]s.fail)`,
		`CREATE AGGREGATE %s.count(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = '0', FINALFUNC = %[1]s.fail)`,
		`CREATE TABLE %s.limiter_token_buckets (wrong int)`,
		`CREATE TABLE %s.limiter_fixed_windows (wrong int)`,
		`CREATE TABLE %s.limiter_overrides (wrong int)`,
		`CREATE TABLE %s.limiter_goose_version (wrong int)`,
		`CREATE FUNCTION %s.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'`,
		`CREATE FUNCTION %s.encode(bytea, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END'`,
	} {
		d.exec(t, fmt.Sprintf(sql, schema))
	}
	d.exec(t, dbtest.TrapOperators(schema))
	return schema
}

// settings are what a session can be given that must not matter.
func settings(path string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.MaxConns = 4
		for name, value := range map[string]string{
			"search_path": path, "TimeZone": "Pacific/Chatham", "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard",
			"extra_float_digits": "-15", "bytea_output": "escape", "standard_conforming_strings": "off",
			"transform_null_equals": "on", "lc_numeric": "C", "default_transaction_deferrable": "on",
		} {
			c.ConnConfig.RuntimeParams[name] = value
		}
	}
}

func TestSessionSettingsDoNotChangeAnyAnswer(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		evil := d.shadow(t)
		for name, path := range map[string]string{
			"first": evil, "before pg_catalog": evil + ", pg_catalog", "empty": `""`,
		} {
			for mode, queryMode := range map[string]pgx.QueryExecMode{"cache_statement": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec} {
				change := func(c *pgxpool.Config) {
					settings(path)(c)
					c.ConnConfig.DefaultQueryExecMode = queryMode
				}
				t.Run("search_path "+name+", "+mode, func(t *testing.T) {
					schema := d.schema(t)
					store := d.store(t, schema, change)
					if err := store.Check(t.Context()); err != nil {
						t.Errorf("Check: %v", err)
					}
					before := query[int64](t, d, "SELECT "+serverClock)
					for _, op := range all("k") {
						s := do(t, store, op)
						if op.Kind <= limiter.OpLook && s.Now < before {
							t.Errorf("%T: Now = %d, before %d", op.Policy, s.Now, before)
						}
					}
					d.rows(t, schema, "x", 1001, "2 hours")
					if n, err := store.Sweep(t.Context(), 5000); err != nil || n != 2*(1001+1) { // and the key that was reset
						t.Errorf("Sweep = %d, %v; want 2004", n, err)
					}
				})
			}
		}
		schema := d.schema(t)
		compare(t, d.store(t, schema, settings(evil+", pg_catalog")), memory.New())
	})
}

// compare sends the same requests to both stores, at the same times, and wants
// the same answers.
func compare(t *testing.T, got, want limiter.Store) {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	clock := limiter.WithClock(func() time.Time { return now })
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	policies := []limiter.Policy{
		limiter.TokenBucket{Capacity: 7, Refill: 3, Interval: time.Second},
		limiter.TokenBucket{Capacity: 4, Refill: 3, Interval: time.Second},
		limiter.FixedWindow{Limit: 7, Window: time.Second},
		limiter.FixedWindow{Limit: 4, Window: time.Second, CountRejected: true},
	}
	for i := range 400 {
		policy := policies[random.IntN(len(policies))]
		now = now.Add(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		key, n := fmt.Sprintf("\xff\\%d", random.IntN(2)), random.Int64N(5)
		var answers [2]string
		for j, store := range []limiter.Store{got, want} {
			l := newLimiter(t, store, policy, clock)
			switch i % 10 {
			case 8:
				answers[j] = fmt.Sprint(l.Refund(t.Context(), key, n))
			case 9:
				r, err := l.Peek(t.Context(), key)
				answers[j] = fmt.Sprintf("%+v %v", r, err)
			default:
				r, err := l.AllowN(t.Context(), key, n)
				answers[j] = fmt.Sprintf("%+v %v", r, err)
			}
		}
		if answers[0] != answers[1] {
			t.Fatalf("seed %d: request %d of %d on %+v: %s\nwant %s", seed, i, n, policy, answers[0], answers[1])
		}
	}
}
