package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

const serverClock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000`

// clocked are operations of every kind that report a clock. The second take of a kind is refused.
var clocked = map[string]limiter.Op{
	"bucket take": take(slow(1), "a", 1), "bucket look": look(slow(1), "a"),
	"window take": take(long(1), "a", 1), "window look": look(long(1), "a"), "window count": take(counting(1), "c", 1),
}

func TestClockIsTheDatabases(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		// The clock of this one database is a day ahead of the application's, and
		// of its own other clocks.
		d.movableClock(t)(24 * time.Hour)
		store := d.store(t, d.schema(t), nil)
		for name, op := range clocked {
			for range 20 { // a clock of whole milliseconds is not in time each time
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
		}
	})
}

// now() would stay that of the transaction's begin.
func TestClockGoesOnInATransaction(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		store := storeOn(t, begin(t, connect(t, d.dsn), pgx.ReadCommitted), d.schema(t))
		for name, op := range clocked {
			for range 2 {
				before := query[int64](t, d, "SELECT "+serverClock)
				if s := do(t, store, op); s.Now < before {
					t.Errorf("%s: it reads a clock of %v before it began", name, time.Duration(before-s.Now))
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

// The statements for Citus also read statement_timestamp().
func TestClockIsSteppedBack(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, opts := range map[string][]postgres.Option{"PostgreSQL": nil, "Citus": {postgres.WithCitus()}} {
			t.Run(name, func(t *testing.T) {
				storetest.RunClock(t, func(t *testing.T) (limiter.Store, func(time.Duration)) {
					// A cached plan would keep the clock of its time: PostgreSQL takes its own functions for
					// immutable.
					opts = append(opts, postgres.WithQueryExecMode(pgx.QueryExecModeExec))
					move := d.movableClock(t)
					return d.store(t, d.schema(t), nil, opts...), func(by time.Duration) {
						d.exec(t, fmt.Sprintf(`CREATE OR REPLACE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz
							LANGUAGE sql STABLE AS 'SELECT transaction_timestamp() + interval ''%f seconds'''`, by.Seconds()))
						move(0)
					}
				})
			})
		}
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

func TestRetryAfterIsTight(t *testing.T) {
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
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store, all := &recorder{Store: d.store(t, schema, nil)}, rows{connect(t, d.dsn), schema}
		for i, c := range cases {
			l, op := newLimiter(t, store, c.policy), take(c.policy, fmt.Sprint("k", i), c.cost)
			op.MaxWait = c.maxWait
			refused := func() (r limiter.Result, err error) {
				if c.maxWait == 0 {
					return l.AllowN(t.Context(), op.Key, c.cost)
				}
				reservation, err := l.Reserve(t.Context(), op.Key, c.cost, c.maxWait)
				return reservation.Result, err
			}
			r, err := refused()
			for err == nil && r.Allowed {
				r, err = refused()
			}
			if err != nil || r.RetryAfter <= 0 || r.RetryAfter%1000 != 0 || r.ResetAfter < r.RetryAfter-time.Hour || r.ResetAfter%1000 != 0 {
				t.Errorf("%s: %+v, %v; want times in whole microseconds", c.name, r, err)
			}
			for late, want := range map[int64]bool{0: true, -1000: false} {
				later := op
				later.Key, later.At = fmt.Sprint(op.Key, "-copy", -late), store.last.Now+int64(r.RetryAfter)+late
				all.Insert(t, later, all.Read(t, op))
				testenv.Equal(t, do(t, store.Store, later).Took, want, c.name, late, "ns after", r.RetryAfter)
			}
		}
	})
}

// midnightIn returns a day whose next period begins after d by the given clock.
func midnightIn(limit int64, now time.Time, d time.Duration) (day limiter.CalendarWindow, edge int64) {
	edge = now.Add(d).Unix()
	const length = 24 * 3600
	offset := int((length - edge%length) % length)
	return limiter.CalendarWindow{Limit: limit, Period: limiter.Day, Location: time.FixedZone("here", offset)}, edge * int64(time.Second)
}

// Whatever the clocks of the processes say, each period lets its limit pass: no more, and no less.
func TestCalendarEdge(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) { takeAroundAnEdge(t, d) })
}

func TestCitusCalendarEdge(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) { takeAroundAnEdge(t, d, postgres.WithCitus()) })
}

func takeAroundAnEdge(t *testing.T, d *database, opts ...postgres.Option) {
	t.Helper()
	const callers, limit = 24, 60
	for name, skew := range map[string]time.Duration{"equal clocks": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour, "40 days ahead": 960 * time.Hour, "40 days behind": -960 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := d.schema(t)
			stores := []*postgres.Store{d.store(t, schema, nil, opts...), d.store(t, schema, nil, opts...)}
			stores[1].SetClock(func() time.Time { return time.Now().Add(skew) })
			var now int64
			for _, store := range stores { // both have a connection then
				now = do(t, store, limiter.Op{Kind: limiter.OpLook, Name: "l", Key: "k", Policy: long(1), Cost: 1}).Now
			}
			day, edge := midnightIn(limit, time.Unix(0, now), 3*time.Second)
			var mu sync.Mutex
			first := do(t, stores[1], limiter.Op{Kind: limiter.OpTake, Name: "l", Key: "k", Policy: day, Cost: 1})
			granted := map[int64]int{first.Row.Start: 1}
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for n := 0; ; n++ {
						op := limiter.Op{Kind: limiter.OpTake, Name: "l", Key: "k", Policy: day, Cost: 1, Timeout: 10 * time.Second}
						s, err := takeAtEdge(t.Context(), stores[i%2], op, i%3 == 0)
						if err != nil {
							t.Errorf("%v", err)
							return
						}
						if s.Took {
							mu.Lock()
							granted[s.Row.Start]++
							mu.Unlock()
						}
						if s.Now > edge+int64(200*time.Millisecond) && !s.Took {
							return
						}
					}
				})
			}
			all.Wait()
			const length = int64(24 * time.Hour)
			charged := do(t, stores[1], limiter.Op{Kind: limiter.OpCharge, Name: "l", Key: "charged", Policy: day, Cost: 1})
			testenv.Equal(t, charged.Row.Start, edge, "the day of a charge")
			if len(granted) != 2 || granted[edge-length] != limit || granted[edge] != limit {
				t.Errorf("granted %v around %d, want %d on each side", granted, edge, limit)
			}
		})
	}
}

// takeAtEdge carries out op, alone or together with a take that always has room.
func takeAtEdge(ctx context.Context, store *postgres.Store, op limiter.Op, all bool) (limiter.State, error) {
	if !all {
		return store.Do(ctx, op)
	}
	roomy := op
	roomy.Policy = slow(1 << 20)
	states, err := store.DoAll(ctx, []limiter.Op{roomy, op})
	if errors.Is(err, limiter.ErrKeyBusy) { // others held the rows all the time
		return limiter.State{}, nil
	}
	if err != nil {
		return limiter.State{}, err
	}
	return states[1], nil
}
