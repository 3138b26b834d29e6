package postgres_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// nowhere is a DSN that parses; nobody listens there.
const nowhere = "postgres://user:hunter2@127.0.0.1:1/db?sslmode=disable"

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, db := range []postgres.DB{
		nil, (*pgxpool.Pool)(nil), (*pgx.Conn)(nil), (*pgxpool.Conn)(nil), (*pgxpool.Tx)(nil), pgx.Tx(nil),
	} {
		_, err := postgres.New(db)
		t.Run(fmt.Sprintf("a nil %T is invalid", db), func(t *testing.T) { wantError(t, err, limiter.ErrInvalid) })
	}
	p := pool(t, nowhere, nil)
	for name, option := range map[string]postgres.Option{
		"nil": nil, "simple protocol": postgres.WithQueryExecMode(pgx.QueryExecModeSimpleProtocol),
		"mode 0": postgres.WithQueryExecMode(0), "mode 99": postgres.WithQueryExecMode(99),
		"schema": postgres.WithSchema(`public"; DROP TABLE x; --`),
	} {
		t.Run(name+" is invalid", func(t *testing.T) {
			wantError(t, testenv.ErrorOf(postgres.New(p, option)), limiter.ErrInvalid)
			wantError(t, testenv.ErrorOf(postgres.Open(nowhere, option)), limiter.ErrInvalid)
		})
	}
	wantError(t, testenv.ErrorOf(postgres.New(p, postgres.WithCitus(), postgres.WithAsyncCommit())), limiter.ErrInvalid)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	} {
		testenv.Equal(t, testenv.ErrorOf(postgres.New(p, postgres.WithQueryExecMode(mode))), nil, "mode", mode)
	}
}

func TestWrongDSN(t *testing.T) {
	t.Parallel()
	const form, encoded = "; write postgres://user:password@host:5432/database", "must be percent-encoded"
	for dsn, want := range map[string]string{
		"hunter2":                                            form,
		"mysql://u:hunter2@h/db":                             form,
		"postgres:/u:hunter2@h/db":                           form,
		"postgres://u:hunter2%zz@h/db":                       form,
		"host=h password='hunter2":                           form,
		"host=h password=my hunter2 dbname=x":                form,
		"postgres://u:hunter2":                               encoded,
		"postgres://u:hunter2/x@h/db?sslmode=bogus":          encoded,
		"postgres://u:hun/ter2@h/db":                         encoded,
		"postgres://u:hun#/ter2@h/db":                        encoded,
		"postgres://u:h@unter:2@h/db":                        encoded,
		"postgresql://u:hunter2@h:port/db":                   encoded,
		"host=h password='hunter2' port=x":                   "invalid port",
		"host=h password = hunter2 sslmode=bogus":            "sslmode",
		"postgres://u:hunter2@h/db?sslmode=bogus":            "sslmode",
		"postgres://u:hunter2@h/db?pool_max_conns=0":         "pool_max_conns",
		"postgres://u:hunter2@h/db?pool_max_conn_lifetime=x": "pool_max_conn_lifetime",
	} {
		_, err := postgres.Open(dsn)
		t.Run(dsn, func(t *testing.T) { wantError(t, err, limiter.ErrInvalid) })
		wantAdvice(t, err, want, "the DSN: ")
		for _, unwanted := range []string{form, encoded, "hunter2"} {
			if err != nil && unwanted != want && strings.Contains(err.Error(), unwanted) {
				t.Errorf("%s: %v names %s", dsn, err, unwanted)
			}
		}
	}
}

// The test is not parallel, because it sets the environment.
func TestEmptyDSN(t *testing.T) {
	for name, value := range map[string]string{"PGHOST": "127.0.0.1", "PGPORT": "1", "PGUSER": "u", "PGSSLMODE": "disable"} {
		t.Setenv(name, value)
	}
	const hint = "the DSN is empty: is DATABASE_URL set?"
	for _, dsn := range []string{"", nowhere} {
		_, err := opened(t, dsn).Do(t.Context(), take(slow(1), secret, 1))
		wantError(t, err, limiter.ErrNotApplied)
		if err != nil && strings.Contains(err.Error(), hint) != (dsn == "") {
			t.Errorf("DSN %q: %v", dsn, err)
		}
	}
}

func TestServerWithoutTLS(t *testing.T) {
	t.Parallel()
	address := accept(t, func(c net.Conn) { // it hangs up on clients that go on without TLS
		request := make([]byte, 8)
		if _, err := io.ReadFull(c, request); err == nil {
			_, _ = c.Write([]byte("N"))
		}
		_ = c.Close()
	})
	for mode, class := range map[string]error{
		"require": limiter.ErrMisconfigured, "verify-full": limiter.ErrMisconfigured,
		"prefer": limiter.ErrNotApplied, "allow": limiter.ErrNotApplied, "disable": limiter.ErrNotApplied,
	} {
		store := storeOn(t, pool(t, "postgres://u:hunter2@"+address+","+address+"/db?sslmode="+mode, few(1)), "public")
		_, err := store.Do(t.Context(), take(slow(1), secret, 1))
		t.Run(mode, func(t *testing.T) { wantError(t, err, class) })
		if class == limiter.ErrMisconfigured {
			wantAdvice(t, err, "sslmode=disable")
		}
	}
}

// sessions counts the connections of an application.
func (d *database) sessions(t *testing.T, application string) int {
	t.Helper()
	return query[int](t, d, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", application)
}

func TestOpenAndClose(t *testing.T) {
	t.Parallel()
	t.Run("before the first decision", func(t *testing.T) {
		store := opened(t, nowhere)
		each(8, func(int) { testenv.ErrorIs(t, store.Close(), nil, "Close") })
		_, err := store.Do(t.Context(), take(slow(1), secret, 1))
		wantError(t, err, limiter.ErrNotApplied)
		wantAdvice(t, err, "closed")
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		schema := d.schema(t)
		t.Run("many goroutines open one pool, at the first decision", func(t *testing.T) {
			application := fmt.Sprintf("limiter-open-%d", schemas.Add(1))
			store := opened(t, d.dsn+"&pool_max_conns=2&application_name="+application, postgres.WithSchema(schema))
			testenv.Equal(t, d.sessions(t, application), 0, "connections of Open")
			kinds, seen := []*limiter.Limiter{newLimiter(t, store, slow(50)), newLimiter(t, store, long(50))}, newTally()
			each(2*workers, func(i int) { seen.allow(t, kinds[i%2], "k", 1) })
			if n := d.sessions(t, application); n < 1 || n > 2 || seen.granted["k"] != 100 {
				t.Errorf("%d connections, want 1 or 2; %d granted, want 100", n, seen.granted["k"])
			}
			must(t, errors.Join(store.Close(), store.Close()))
			d.gone(t, application) // the server notices a moment later
			_, err := store.Do(t.Context(), take(slow(1), secret, 1))
			wantError(t, err, limiter.ErrNotApplied)
			wantAdvice(t, err, "closed")
			wantError(t, testenv.ErrorOf(store.Sweep(t.Context(), 1)), limiter.ErrNotApplied)
			wantError(t, store.Check(t.Context()), limiter.ErrNotApplied)
		})
		t.Run("Close leaves open what New was given", func(t *testing.T) {
			for _, db := range []postgres.DB{pool(t, d.dsn, few(1)), connect(t, d.dsn), begin(t, connect(t, d.dsn), pgx.ReadCommitted)} {
				store := storeOn(t, db, schema)
				must(t, errors.Join(store.Close(), store.Close()))
				do(t, store, look(slow(1), "k"))
				testenv.Equal(t, testenv.ErrorOf(db.Exec(t.Context(), "SELECT 1")), nil, fmt.Sprintf("%T after Close", db))
			}
		})
	})
}

func TestCheck(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		wantError(t, storeOn(t, pool(t, nowhere, nil), "public").Check(t.Context()), limiter.ErrNotApplied)
		r := newTracer(false)
		checked := d.store(t, d.schema(t), r.in)
		must(t, checked.Check(t.Context()))
		r.fails = func(name string) bool { return name == "version" }
		wantError(t, checked.Check(t.Context()), limiter.ErrNotApplied)
		cases := []struct{ name, change, advice string }{
			{"as migrated", "", ""},
			{"no version table", "DROP TABLE %.limiter_goose_version", ""},
			{"a column more", "ALTER TABLE %.limiter_token_buckets ADD later int", ""},
			{"a newer version", "INSERT INTO %.limiter_goose_version (version_id, is_applied) VALUES (99, true)", ""},
			{"version behind", "UPDATE %.limiter_goose_version SET is_applied = false WHERE version_id > 0; INSERT INTO %.limiter_overrides (limiter, key, kind, capacity) VALUES ('l', '', 'limit', 1)", "records version 0"},
			{"no buckets", "DROP TABLE %.limiter_token_buckets CASCADE", "migrations.Up"},
			{"no windows", "DROP TABLE %.limiter_fixed_windows CASCADE", "migrations.Up"},
			{"no overrides", "DROP TABLE %.limiter_overrides", "migrations.Up"},
			{"a column less", "ALTER TABLE %.limiter_token_buckets DROP granted", "migrations.Up"},
			{"a column less in windows", "ALTER TABLE %.limiter_fixed_windows DROP granted", "migrations.Up"},
			{"a column less in overrides", "ALTER TABLE %.limiter_overrides DROP note", "migrations.Up"},
			{"no schema", "DROP SCHEMA % CASCADE", "migrations.Up"},
		}
		for _, c := range cases {
			schema := d.schema(t)
			d.exec(t, strings.ReplaceAll(c.change, "%", schema))
			p := pool(t, d.dsn, few(1))
			for _, store := range []*postgres.Store{
				storeOn(t, p, schema), storeOn(t, connect(t, d.dsn), schema), storeOn(t, p, schema, postgres.WithCitus()),
			} {
				err := store.Check(t.Context())
				if c.advice == "" && err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				if c.advice != "" {
					wantError(t, err, limiter.ErrMisconfigured)
					wantAdvice(t, err, c.advice, fmt.Sprintf("migrations.WithSchema(%q)", schema))
				}
			}
		}
	})
}

func TestOpenSetsUpItsPool(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]struct{ connect, ping time.Duration }{
		"host=localhost": {3 * time.Second, postgres.PingTimeout},
		"host=localhost connect_timeout=9 pool_ping_timeout=3s": {9 * time.Second, 3 * time.Second},
	} {
		c := postgres.PoolConfig(opened(t, dsn))
		if c.ConnConfig.ConnectTimeout != want.connect || c.PingTimeout != want.ping || c.ShouldPing == nil || c.AfterConnect == nil {
			t.Errorf("%s: ConnectTimeout %v, PingTimeout %v, hooks %t and %t; want %+v and both", dsn,
				c.ConnConfig.ConnectTimeout, c.PingTimeout, c.ShouldPing != nil, c.AfterConnect != nil, want)
		}
	}
}
