package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

// handles are the ways to a database. TestStore runs the whole suite on three of them, and TestRows compares
// the statements on each.
var handles = []struct {
	name string
	open func(t *testing.T, dsn string) postgres.DB
}{
	{"cached", mode(pgx.QueryExecModeCacheStatement)},
	{"described", mode(pgx.QueryExecModeCacheDescribe)},
	{"exec", mode(pgx.QueryExecModeExec)},
	{"simple protocol replaced", mode(pgx.QueryExecModeSimpleProtocol)},
	{"pgbouncer", func(t *testing.T, dsn string) postgres.DB { // in transaction mode
		return mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, dsn))
	}},
	{"serializable", func(t *testing.T, dsn string) postgres.DB { return pool(t, dsn, isolated("serializable")) }},
	{"connection", func(t *testing.T, dsn string) postgres.DB { return connect(t, dsn) }},
	{"connection in a transaction", func(t *testing.T, dsn string) postgres.DB {
		conn := connect(t, dsn)
		begin(t, conn, pgx.ReadCommitted)
		return conn
	}},
	{"transaction", func(t *testing.T, dsn string) postgres.DB { return begin(t, connect(t, dsn), pgx.ReadCommitted) }},
}

// mode opens a pool in a query mode.
func mode(m pgx.QueryExecMode) func(*testing.T, string) postgres.DB {
	return func(t *testing.T, dsn string) postgres.DB {
		return pool(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode, c.MaxConns = m, 8 })
	}
}

// isolated makes a level the default of a pool's transactions.
func isolated(level string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
	}
}

// TestStore runs the suite with cached statements, in exec mode, and in a transaction of the caller. In the
// first two, the roles have no more rights than the documentation says, and a hostile schema comes first in
// their search path.
func TestStore(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, set := range sets {
			t.Run(set.name, func(t *testing.T) {
				t.Parallel()
				set.run(t, newLeast(t, d, set.async, set.change))
			})
		}
		t.Run("transaction", func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) limiter.Store {
				schema := d.schema(t)
				return storeOn(t, begin(t, connect(t, d.dsn), pgx.ReadCommitted), schema)
			})
		})
	})
}

// set is a way to set up sessions and stores that changes no answer.
type set struct {
	name   string
	async  bool
	change func(*pgxpool.Config)
}

var sets = []set{
	{"cached", false, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan" }},
	{"exec", true, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
		c.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	}},
}

func (s set) run(t *testing.T, l *least) {
	t.Helper()
	var opts []postgres.Option
	if s.async {
		opts = append(opts, postgres.WithAsyncCommit())
	}
	storetest.Run(t, func(t *testing.T) limiter.Store { return l.open(t, opts...) })
	t.Run("the roles need no more rights", func(t *testing.T) {
		store := l.open(t, opts...)
		for _, p := range []limiter.Policy{slow(5), long(5), places(5), rowtest.Lasting["sliding"](5)} { // the suite does not bring this about for sure
			do(t, postgres.RowLocked{Store: store.Store}, take(p, "k", 1))
		}
		for _, p := range []limiter.Policy{slow(6), long(6)} { // a row of another policy, and a missing one
			doAll(t, store.Store, take(p, "k", 1), take(p, "new", 1))
		}
		must(t, store.Check(t.Context()))
		wantOverrides(t, store.Store)
		_, err := store.Store.Sweep(t.Context(), 1)
		wantError(t, err, limiter.ErrMisconfigured)
		wantAdvice(t, err, "GRANT DELETE")
	})
	sent := l.sent.take()
	for name, text := range postgres.Statements("public", s.async) {
		if !slices.Contains(sent, l.sent.names[text]) { // statements of both tables may be the same
			t.Errorf("no store sent %s", name)
		}
	}
}

// unprivileged is a Store whose role may not delete. It sweeps by one whose role may.
type unprivileged struct {
	*postgres.Store
	sweeper *postgres.Store
}

func (u unprivileged) Sweep(ctx context.Context, limit int64) (int64, error) {
	return u.sweeper.Sweep(ctx, limit)
}

// least is a database with two roles that have no more rights than the documentation says.
type least struct {
	*database
	app, sweeper       string // roles
	appDSN, sweeperDSN string
	change             func(*pgxpool.Config)
	sent               *tracer
}

func newLeast(t *testing.T, d *database, async bool, change func(*pgxpool.Config)) *least {
	t.Helper()
	l := &least{database: d, sent: newTracer(async)}
	l.app, l.appDSN = d.role(t)
	l.sweeper, l.sweeperDSN = d.role(t)
	evil := d.shadow(t)
	d.exec(t, "GRANT USAGE ON SCHEMA "+evil+" TO PUBLIC") // otherwise the server ignores it
	l.change = func(c *pgxpool.Config) {
		settings(evil)(c)
		c.MaxConns = 8
		c.ConnConfig.Tracer = l.sent
		change(c)
	}
	return l
}

// open makes a store on tables of its own.
func (l *least) open(t *testing.T, opts ...postgres.Option) unprivileged {
	t.Helper()
	schema := l.schema(t)
	tables := allTables(schema)
	for _, grant := range []string{
		"USAGE ON SCHEMA " + schema + " TO " + l.app + ", " + l.sweeper,
		"SELECT, INSERT, UPDATE ON " + tables + " TO " + l.app,
		"SELECT ON " + schema + ".limiter_goose_version, " + schema + ".limiter_overrides TO " + l.app,
		"SELECT, UPDATE, DELETE ON " + tables + " TO " + l.sweeper,
	} {
		l.exec(t, "GRANT "+grant)
	}
	return unprivileged{
		storeOn(t, pool(t, l.appDSN, l.change), schema, opts...),
		storeOn(t, pool(t, l.sweeperDSN, l.change), schema, opts...),
	}
}

// shadow makes a hostile schema: its objects have the names that the statements use.
func (d *database) shadow(t *testing.T) (schema string) {
	t.Helper()
	schema = fmt.Sprintf("evil%d", schemas.Add(1))
	d.exec(t, "CREATE SCHEMA "+schema)
	const hijack = " LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END'"
	const epoch = " RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'"
	for _, create := range []string{
		"FUNCTION %s.clock_timestamp()" + epoch,
		"FUNCTION %s.statement_timestamp()" + epoch,
		"FUNCTION %s.extract(text, timestamptz) RETURNS numeric LANGUAGE sql AS 'SELECT 0::numeric'",
		"FUNCTION %s.set_config(text, text, boolean) RETURNS text" + hijack,
		"FUNCTION %s.to_regclass(text) RETURNS regclass" + hijack,
		"FUNCTION %s.has_table_privilege(oid, text) RETURNS boolean" + hijack,
		"FUNCTION %s.encode(bytea, text) RETURNS text" + hijack,
		"FUNCTION %s.fail(bigint) RETURNS bigint" + hijack,
		"AGGREGATE %s.max(bigint) (SFUNC = int8larger, STYPE = bigint, FINALFUNC = %[1]s.fail)",
		"AGGREGATE %s.count(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = '0', FINALFUNC = %[1]s.fail)",
		"TABLE %s.limiter_token_buckets (wrong int)",
		"TABLE %s.limiter_fixed_windows (wrong int)",
		"TABLE %s.limiter_overrides (wrong int)",
		"TABLE %s.limiter_goose_version (wrong int)",
	} {
		d.exec(t, "CREATE "+fmt.Sprintf(create, schema))
	}
	d.exec(t, dbtest.TrapOperators(schema))
	return schema
}

// settings gives sessions settings that must not change any answer.
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

func TestHostileSessions(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		evil := d.shadow(t)
		for name, path := range map[string]string{"first": evil, "before pg_catalog": evil + ", pg_catalog", "empty": `""`} {
			for _, set := range sets {
				t.Run("search_path "+name+", "+set.name, func(t *testing.T) {
					schema := d.schema(t)
					store := d.store(t, schema, func(c *pgxpool.Config) {
						settings(path)(c)
						set.change(c)
					})
					must(t, store.Check(t.Context()))
					before := query[int64](t, d, "SELECT "+serverClock)
					for _, op := range all("k") {
						if s := do(t, store, op); op.Kind <= limiter.OpLook && s.Now < before {
							t.Errorf("%T: Now = %d, want at least %d", op.Policy, s.Now, before)
						}
					}
					d.rows(t, schema, "x", 1001, "2 hours")
					if n, err := store.Sweep(t.Context(), 5000); err != nil || n != 2*(1001+1) { // and the key that was reset
						t.Errorf("Sweep = %d, %v; want 2004", n, err)
					}
					d.override(t, schema, "a", 1, serverClock+" + 3600000000000")
					d.override(t, schema, "b", 9, serverClock)
					wantOverrides(t, store, "a")
				})
			}
		}
	})
}

// BenchmarkStore measures on the server of LIMITER_TEST_POSTGRES_DSN, with the
// durability that it is set to: a container of the tests has fsync off.
func BenchmarkStore(b *testing.B) {
	dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN")
	if dsn == "" {
		b.Skip("LIMITER_TEST_POSTGRES_DSN is not set: there is no server to measure")
	}
	d := openDatabase(b, dsn)
	d.shared = true
	for name, opts := range map[string][]postgres.Option{"sync": nil, "async": {postgres.WithAsyncCommit()}} {
		b.Run(name, func(b *testing.B) {
			storetest.Bench(b, func(b *testing.B) limiter.Store { return storeOn(b, pool(b, dsn, few(16)), d.schema(b), opts...) })
		})
	}
	b.Run("transaction", func(b *testing.B) {
		p, schema := pool(b, dsn, few(1)), d.schema(b)
		l := newLimiter(b, storeOn(b, p, schema), long(1<<40))
		for b.Loop() {
			must(b, pgx.BeginFunc(b.Context(), p, func(tx pgx.Tx) error {
				_, err := l.On(storeOn(b, tx, schema)).Allow(b.Context(), "k")
				return err
			}))
		}
	})
}
