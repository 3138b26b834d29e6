package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

const serverClock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000`

// The statements take the epoch as a double, which is read faster than as a numeric.
func TestClockReadsEachMicrosecondAsItIs(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		wrong := query[int](t, d, `SELECT count(*) FROM (
			SELECT timestamptz '1970-01-01 UTC' + make_interval(secs => s) + n * interval '1 microsecond' AS t
			FROM unnest(ARRAY[0, 1e9, 1.7e9, 2e9, 3e9, 3.439e9]) AS s, generate_series(0, 50000) AS n
		) AS times WHERE (date_part('epoch', t) * 1000000)::bigint <> (extract(epoch FROM t) * 1000000)::bigint`)
		if wrong > 0 {
			t.Errorf("%d of 300,006 instants until 2078 are read wrongly", wrong)
		}
	})
}

func TestClockIsTheDatabases(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		// The clock of this one database is a day ahead of the application's, and
		// of its own other clocks.
		d.movableClock(t)(24 * time.Hour)
		store := d.store(t, d.schema(t), nil)
		for name, op := range map[string]limiter.Op{
			"bucket take": take(slow(1), "a", 1), "bucket refused": take(slow(1), "a", 1), "bucket look": look(slow(1), "a"),
			"window take": take(long(1), "a", 1), "window look": look(long(1), "a"), "window count": take(counting(1), "b", 1),
		} {
			before := query[int64](t, d, "SELECT "+serverClock)
			s := do(t, store, op)
			after := query[int64](t, d, "SELECT "+serverClock)
			if s.Now < before || s.Now > after {
				t.Errorf("%s: Now = %d, want the server's, from %d to %d", name, s.Now, before, after)
			}
			if ahead := time.Duration(s.Now - time.Now().UnixNano()); ahead < 23*time.Hour {
				t.Errorf("%s: Now is %v ahead of this process, want a day", name, ahead)
			}
			if s.Tick != 1000 || s.Now%1000 != 0 {
				t.Errorf("%s: Now = %d with Tick %d, want multiples of 1000", name, s.Now, s.Tick)
			}
		}
	})
}

func TestClockHasAllMicroseconds(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		store := d.store(t, d.schema(t), nil)
		for name, op := range map[string]limiter.Op{
			"bucket take": take(slow(100), "a", 1), "bucket refused": take(slow(1), "b", 1), "bucket look": look(slow(1), "a"),
			"window take": take(long(100), "a", 1), "window refused": take(long(1), "b", 1), "window look": look(long(1), "a"),
			"window count": take(counting(1), "c", 1),
		} {
			const readings = 20
			whole := map[bool]int{}
			for i := range 2 * readings {
				fresh := i >= readings
				if fresh {
					op.Key = fmt.Sprint(name, i)
				}
				if do(t, store, op).Now%int64(time.Millisecond) == 0 {
					whole[fresh]++
				}
			}
			for fresh, n := range whole {
				if n == readings { // by chance once in 10^60
					t.Errorf("%s, a new key each time %t: all of %d readings are whole milliseconds", name, fresh, n)
				}
			}
		}
	})
}

// What has begun keeps its now() to the end, and a transaction may last.
func TestClockGoesOnWithinATransaction(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		store := storeOn(t, tx, d.schema(t))
		for _, policy := range []limiter.Policy{slow(1), long(1), counting(1)} {
			for i, op := range []limiter.Op{take(policy, "k", 1), take(policy, "k", 1), look(policy, "k")} {
				before := query[int64](t, d, "SELECT "+serverClock)
				if s := do(t, store, op); s.Now < before {
					t.Errorf("%T: operation %d reads a clock of %v before it began", policy, i, time.Duration(before-s.Now))
				}
			}
		}
	})
}

// movableClock makes the clock of this one database a movable one.
func (d *database) movableClock(t *testing.T) (ahead func(time.Duration)) {
	t.Helper()
	if !query[bool](t, d, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") {
		t.Skip("only a superuser can move the clock of a database")
	}
	return func(by time.Duration) {
		t.Helper()
		// The planner puts the expression in the place of the call; a body that it
		// could not inline would be passed over for the built-in function.
		d.exec(t, fmt.Sprintf(`CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz
			LANGUAGE sql VOLATILE AS 'SELECT statement_timestamp() + interval ''%f seconds'''`, by.Seconds()))
	}
}

func TestClockOfTheDatabaseIsSteppedBack(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		storetest.RunClock(t, func(t *testing.T) (limiter.Store, func(time.Duration)) {
			// A plan that is kept would keep the clock of its time, too: PostgreSQL
			// takes its own functions for immutable.
			store := d.store(t, d.schema(t), nil, postgres.WithQueryExecMode(pgx.QueryExecModeExec))
			return store, d.movableClock(t)
		})
	})
}

// recorder keeps the last state that a store reported.
type recorder struct {
	limiter.Store
	last limiter.State
}

func (r *recorder) Do(ctx context.Context, op limiter.Op) (s limiter.State, err error) {
	r.last, err = r.Store.Do(ctx, op)
	return r.last, err
}

// copyRows copies the rows of a key to another.
func (d *database) copyRows(t *testing.T, schema, from, to string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_token_buckets (full_at, at, step, capacity, granted, limiter, key)
		SELECT full_at, at, step, capacity, granted, limiter, '%s' FROM %[1]s.limiter_token_buckets WHERE key = '%[3]s'`, schema, to, from))
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_fixed_windows (window_start, win, lim, used, at, granted, limiter, key)
		SELECT window_start, win, lim, used, at, granted, limiter, '%s' FROM %[1]s.limiter_fixed_windows WHERE key = '%[3]s'`, schema, to, from))
}

func TestRetryAfterIsTightToTheMicrosecond(t *testing.T) {
	cases := []struct {
		name    string
		policy  limiter.Policy
		cost    int64
		maxWait time.Duration
	}{
		{"bucket", slow(3), 1, 0},
		{"bucket, dear", slow(3), 3, 0},
		{"bucket whose step is no whole microsecond", limiter.TokenBucket{Capacity: 7, Refill: 7, Interval: time.Hour + 1}, 2, 0},
		{"bucket, reserved", limiter.TokenBucket{Capacity: 2, Refill: 3, Interval: time.Hour}, 2, 7 * time.Minute},
		{"window", long(3), 1, 0},
		{"window, dear", limiter.FixedWindow{Limit: 3, Window: 11*time.Hour + 13}, 3, 0},
		{"window, reserved", limiter.FixedWindow{Limit: 3, Window: 40 * time.Minute}, 1, 41 * time.Minute},
		{"window that counts refusals", counting(3), 1, 0},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := &recorder{Store: d.store(t, schema, nil)}
		for i, c := range cases {
			l := newLimiter(t, store, c.policy)
			key := fmt.Sprintf("k%d", i)
			refused := func() limiter.Result {
				if c.maxWait == 0 {
					r, err := l.AllowN(t.Context(), key, c.cost)
					if err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					return r
				}
				r, err := l.Reserve(t.Context(), key, c.cost, c.maxWait)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				return r.Result
			}
			r := refused()
			for r.Allowed {
				r = refused()
			}
			if r.RetryAfter <= 0 || r.RetryAfter%1000 != 0 || r.ResetAfter < r.RetryAfter-time.Hour || r.ResetAfter%1000 != 0 {
				t.Errorf("%s: RetryAfter = %d ns, ResetAfter = %d ns; want whole microseconds", c.name, r.RetryAfter, r.ResetAfter)
			}
			op := take(c.policy, "", c.cost)
			op.MaxWait = c.maxWait
			for late, want := range map[int64]bool{0: true, -1000: false} {
				op.Key = fmt.Sprintf("%s-copy%d", key, -late)
				op.At = store.last.Now + int64(r.RetryAfter) + late
				d.copyRows(t, schema, key, op.Key)
				if s := do(t, store.Store, op); s.Took != want {
					t.Errorf("%s: %d ns after RetryAfter %v: Took = %t, want %t", c.name, late, r.RetryAfter, s.Took, want)
				}
			}
		}
	})
}
