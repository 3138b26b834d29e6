package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// wantAdvice checks that an error tells what to do.
func wantAdvice(t *testing.T, err error, wants ...string) {
	t.Helper()
	for _, advice := range wants {
		if err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("%v\ndoes not name %s", err, advice)
		}
	}
}

// all are takes and looks of every kind.
func all(key string) []limiter.Op {
	return []limiter.Op{
		take(slow(1), key, 1), take(long(1), key, 1), take(counting(1), key, 1), look(slow(1), key), look(long(1), key),
		{Kind: limiter.OpRefund, Name: "test", Key: key, Policy: slow(1), Cost: 1},
		{Kind: limiter.OpRefund, Name: "test", Key: key, Policy: long(1), Cost: 1},
		{Kind: limiter.OpReset, Name: "test", Key: key, Policy: slow(1)},
		{Kind: limiter.OpReset, Name: "test", Key: key, Policy: long(1)},
		{Kind: limiter.OpCancel, Name: "test", Key: key, Policy: slow(1), Cost: 1},
		{Kind: limiter.OpCancel, Name: "test", Key: key, Policy: long(1), Cost: 1},
	}
}

// role makes a role that may log in, and returns its name and DSN.
func (d *database) role(t *testing.T) (name, dsn string) {
	t.Helper()
	if !query[bool](t, d, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") {
		t.Skip("only a superuser can make roles as it likes")
	}
	name = fmt.Sprintf("%s_r%d", query[string](t, d, "SELECT current_database()::text"), schemas.Add(1))
	d.exec(t, "CREATE ROLE "+name+" LOGIN PASSWORD 'hunter2'")
	t.Cleanup(func() {
		if _, err := d.db.Exec("DROP OWNED BY " + name + "; DROP ROLE " + name); err != nil {
			t.Errorf("drop role: %v", err)
		}
	})
	u, err := url.Parse(d.dsn)
	must(t, err)
	u.User = url.UserPassword(name, "hunter2")
	return name, u.String()
}

func TestRoleNeedsWhatTheDocsSay(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		name, dsn := d.role(t)
		store := storeOn(t, pool(t, dsn, nil), schema)
		tables := allTables(schema)
		grants := []string{
			"", "GRANT USAGE ON SCHEMA " + schema + " TO " + name, "GRANT SELECT ON " + tables + ", " + schema + ".limiter_overrides TO " + name,
		}
		for i, grant := range grants {
			d.exec(t, grant)
			_, err := store.Do(t.Context(), take(slow(1), secret, 1))
			wantError(t, err, limiter.ErrMisconfigured)
			wantAdvice(t, err, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE ON %q.limiter_token_buckets", schema), "GRANT DELETE")
			if err := store.Check(t.Context()); (err == nil) != (i == 2) {
				t.Errorf("Check with grants %q: %v", grants[:i+1], err)
			}
		}
		d.exec(t, "GRANT INSERT, UPDATE ON "+tables+" TO "+name)
		for _, op := range all(secret) {
			do(t, store, op)
		}
		must(t, store.Check(t.Context()))
		wantError(t, testenv.ErrorOf(store.Sweep(t.Context(), 1)), limiter.ErrMisconfigured)
		wantError(t, testenv.ErrorOf(storeOn(t, pool(t, dsn, nil), schema, postgres.WithCitus()).Sweep(t.Context(), 1)), limiter.ErrMisconfigured)
		d.exec(t, "GRANT DELETE ON "+tables+" TO "+name)
		must(t, testenv.ErrorOf(store.Sweep(t.Context(), 1)))

		// Only who may read goose's table is told of a migration that is missing.
		d.exec(t, "DELETE FROM "+schema+".limiter_goose_version WHERE version_id > 0")
		must(t, store.Check(t.Context()))
		d.exec(t, "GRANT SELECT ON "+schema+".limiter_goose_version TO "+name)
		wantError(t, store.Check(t.Context()), limiter.ErrMisconfigured)
	})
}

func TestRefusedConnection(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		name, dsn := d.role(t)
		change := func(f func(u *url.URL)) string {
			u, err := url.Parse(dsn)
			must(t, err)
			f(u)
			return u.String()
		}
		d.exec(t, "ALTER ROLE "+name+" CONNECTION LIMIT 0")
		for dsn, class := range map[string]error{
			dsn: limiter.ErrNotApplied, // 53300
			strings.Replace(d.dsn, "/limiter_test", "/absent", 1):                       limiter.ErrMisconfigured,
			change(func(u *url.URL) { u.User = url.UserPassword("absent", "hunter2") }): limiter.ErrMisconfigured,
			change(func(u *url.URL) { u.User = url.UserPassword(name, "hunter3") }):     limiter.ErrMisconfigured,
			change(func(u *url.URL) { u.Host = "127.0.0.1:1" }):                         limiter.ErrNotApplied,
		} {
			_, err := opened(t, dsn).Do(t.Context(), take(slow(1), secret, 1))
			wantError(t, err, class)
			if strings.Contains(err.Error(), "hunter") {
				t.Errorf("the error tells the password: %v", err)
			}
		}
	})
}

func TestPgBouncerMixesUpStatements(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := storeOn(t, pool(t, dbtest.PgBouncer(t, d.dsn), func(c *pgxpool.Config) {
			c.MaxConns = 8
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		}), schema)
		const capacity = 40
		var failed, granted atomic.Int64
		each(8, func(int) {
			for range 10 {
				s, err := store.Do(t.Context(), take(slow(capacity), secret, 1))
				switch {
				case err != nil: // never with PgBouncer 1.21 and later
					failed.Add(1)
					wantError(t, err, limiter.ErrNotApplied)
					wantAdvice(t, err, "pgx.QueryExecModeExec")
				case s.Took:
					granted.Add(1)
				}
			}
		})
		t.Logf("%d of 80 calls failed, %d were granted", failed.Load(), granted.Load())
		// None of the calls that failed was carried out.
		wantLeft(t, d.store(t, schema, nil), take(slow(capacity), secret, 1), capacity-granted.Load(), "afterwards")
	})
}

// override sets an override of a bucket for the limiter "test". expires is SQL, in ns since 1970.
func (d *database) override(t *testing.T, schema, key string, capacity int64, expires string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_overrides (limiter, key, kind, capacity, refill, period, expires_at)
		VALUES ('test', '%s', 'bucket', %d, 1, 3600000000000, %s)`, schema, key, capacity, expires))
}

// wantOverrides fails the test unless the store has these overrides of the limiter "test".
func wantOverrides(t *testing.T, store *postgres.Store, keys ...string) {
	t.Helper()
	list, err := store.Overrides(bounded(t), "test", 10)
	if err != nil || len(list) != len(keys) {
		t.Errorf("Overrides = %+v, %v; want %q", list, err, keys)
		return
	}
	for i, o := range list {
		if o.Key != keys[i] || o.Policy != limiter.Policy(slow(int64(i+1))) {
			t.Errorf("override %d is %+v, want the key %q", i, o, keys[i])
		}
	}
}

func TestOverrides(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.override(t, schema, `\xff00`, 2, "NULL")
		d.override(t, schema, "a", 1, "NULL")
		for _, h := range handles {
			db := h.open(t, d.dsn)
			for _, opts := range [][]postgres.Option{nil, {postgres.WithCitus()}} {
				wantOverrides(t, storeOn(t, db, schema, opts...), "a", "\xff\x00")
			}
		}
	})
}

func TestErrorsOfOverrides(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.override(t, schema, secret, 1, "NULL")
		name, dsn := d.role(t)
		d.exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+name)
		app := storeOn(t, pool(t, dsn, few(1)), schema)
		wrong := func(db *postgres.Store, limiterName string, most int, class error, advice ...string) {
			t.Helper()
			_, err := db.Overrides(t.Context(), limiterName, most)
			wantError(t, err, class)
			wantAdvice(t, err, advice...)
		}
		wrong(app, "test", 0, limiter.ErrInvalid)
		wrong(app, "te\x00st", 1, limiter.ErrInvalid)
		wrong(app, "test", 10, limiter.ErrMisconfigured, fmt.Sprintf(`GRANT SELECT ON %q.limiter_overrides`, schema))
		d.exec(t, "GRANT SELECT ON "+schema+".limiter_overrides TO "+name)
		wantOverrides(t, app, secret)

		d.exec(t, "ALTER TABLE "+schema+".limiter_overrides DROP CONSTRAINT limiter_overrides_check")
		d.exec(t, "UPDATE "+schema+".limiter_overrides SET kind = 'later'")
		wrong(app, "test", 10, limiter.ErrMisconfigured, `"later"`)
		d.exec(t, "DROP TABLE "+schema+".limiter_overrides")
		wrong(storeOn(t, pool(t, d.dsn, few(1)), schema), "test", 10, limiter.ErrMisconfigured, "migrations.Up", schema)
		wrong(storeOn(t, pool(t, nowhere, nil), schema), "test", 1, limiter.ErrNotApplied)
	})
}

// Overrides of thousands of keys must not cost more than a read by the primary key.
func TestOverridesByPrimaryKey(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_overrides (limiter, key, kind, capacity, refill, period)
			SELECT 'l' || i %% 100, int4send(i), 'bucket', 1, 1, 1000000000 FROM generate_series(1, 20000) AS i`, schema))
		d.exec(t, "ANALYZE "+schema+".limiter_overrides")
		plans := d.explain(t, schema, func(name string) bool { return name == "overrides" }, "plan_cache_mode = force_generic_plan")
		testenv.Contains(t, plans["overrides"], "limiter_overrides_pkey")
	})
}

func TestPasswordThatChanges(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		role, dsn := d.role(t)
		d.exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
		d.exec(t, "GRANT SELECT, INSERT, UPDATE ON "+allTables(schema)+" TO "+role)
		asked, password, failure := 0, "hunter2", error(nil)
		p, err := withTokens(t.Context(), dsn+"&password=none", func(context.Context, *pgx.ConnConfig) (string, error) {
			asked++
			return password, failure
		})
		must(t, err)
		defer p.Close()
		store := storeOn(t, p, schema)
		took := func(what string, want int) {
			t.Helper()
			if s := do(t, store, take(slow(3), "k", 1)); !s.Took || asked != want {
				t.Errorf("%s: %+v, asked %d times; want a grant, and %d", what, s, asked, want)
			}
		}
		took("the first take", 1)
		password = "second"
		d.exec(t, fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", role, password))
		took("a take on the same connection", 1)
		p.Reset() // as when connections reach pool_max_conn_lifetime
		took("a take on a new connection", 2)
		failure = errors.New("the identity service is down")
		p.Reset()
		_, err = store.Do(t.Context(), take(slow(3), secret, 1))
		wantError(t, err, limiter.ErrNotApplied)
		testenv.ErrorIs(t, err, failure, "the error of the identity service")
	})
}

func TestConnector(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		c := parse(t, d.dsn).ConnConfig
		dsn := fmt.Sprintf("user=%s password=%s dbname=%s sslmode=disable connect_timeout=3", c.User, c.Password, c.Database)
		dialed := 0
		p, err := withDialer(t.Context(), dsn, func(ctx context.Context) (net.Conn, error) {
			dialed++
			return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprint(c.Host, ":", c.Port))
		})
		must(t, err)
		defer p.Close()
		if s := do(t, storeOn(t, p, d.schema(t)), take(slow(3), "k", 1)); !s.Took || dialed != 1 {
			t.Errorf("%+v, dialed %d times; want a grant, and once", s, dialed)
		}
	})
}
