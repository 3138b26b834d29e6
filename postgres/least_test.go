package postgres_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

// unprivileged is a Store whose role may not delete. It sweeps by one whose role may.
type unprivileged struct {
	*postgres.Store
	sweeper *postgres.Store
}

func (u unprivileged) Sweep(ctx context.Context, limit int64) (int64, error) {
	return u.sweeper.Sweep(ctx, limit)
}

// least is a database with two roles that have no more than the documentation says.
// Their sessions are set up in the oddest way, with a hostile schema first in their path.
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
	d.exec(t, "GRANT USAGE ON SCHEMA "+evil+" TO PUBLIC") // or it would not be looked into
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

// sets are ways to set up sessions and stores that nothing must depend on.
var sets = []struct {
	name   string
	async  bool
	change func(*pgxpool.Config)
}{
	{"prepared statements", false, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	}},
	{"text, asynchronous commits, repeatable read", true, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
		c.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	}},
}

func TestStoreOfTheLeastRoleInAHostileSession(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, set := range sets {
			t.Run(set.name, func(t *testing.T) {
				var opts []postgres.Option
				if set.async {
					opts = append(opts, postgres.WithAsyncCommit())
				}
				l := newLeast(t, d, set.async, set.change)
				storetest.Run(t, func(t *testing.T) limiter.Store { return l.open(t, opts...) })

				// What the suite does not bring about for sure.
				store := l.open(t, opts...)
				for _, p := range []limiter.Policy{slow(5), long(5)} {
					do(t, postgres.RowLocked{Store: store.Store}, take(p, "k", 1))
				}
				// A row of another policy, and one that is missing.
				for _, p := range []limiter.Policy{slow(6), long(6)} {
					doAll(t, store.Store, take(p, "k", 1), take(p, "new", 1))
				}
				if err := store.Check(t.Context()); err != nil {
					t.Errorf("Check: %v", err)
				}
				if _, err := store.Overrides(t.Context(), "test", 1); err != nil {
					t.Errorf("Overrides: %v", err)
				}
				_, err := store.Store.Sweep(t.Context(), 1)
				wantError(t, err, limiter.ErrMisconfigured)
				wantAdvice(t, err, "DELETE to sweep")

				sent := l.sent.take()
				for name, text := range postgres.Statements("public", set.async) {
					if !slices.Contains(sent, l.sent.names[text]) { // statements of both tables may be the same
						t.Errorf("nothing sent %s", name)
					}
				}
			})
		}
	})
}
