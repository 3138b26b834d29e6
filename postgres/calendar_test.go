package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

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
	for name, skew := range map[string]time.Duration{"equal clocks": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour, "40 days ahead": 960 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := d.schema(t)
			stores := []*postgres.Store{d.store(t, schema, nil, opts...), d.store(t, schema, nil, opts...)}
			stores[1].SetClock(func() time.Time { return time.Now().Add(skew) })
			now := do(t, stores[0], limiter.Op{Kind: limiter.OpLook, Name: "l", Key: "k", Policy: long(1), Cost: 1}).Now
			day, edge := midnightIn(limit, time.Unix(0, now), 2*time.Second)
			var mu sync.Mutex
			granted := map[int64]int{}
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
			if len(granted) != 2 || granted[edge-length] != limit || granted[edge] != limit {
				t.Errorf("granted %v around %d, want %d on each side", granted, edge, limit)
			}
		})
	}
}

// If a process's clock is in another period, the clock of the database decides which one counts.
func TestCalendarOfAnotherClock(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, skew := range map[string]time.Duration{"behind": -time.Hour, "ahead": 30 * time.Hour} {
			store := d.store(t, d.schema(t), nil)
			store.SetClock(func() time.Time { return time.Now().Add(skew) })
			day, edge := midnightIn(9, time.Unix(0, do(t, store, look(long(1), "clock")).Now), -time.Second)
			for _, kind := range []limiter.OpKind{limiter.OpTake, limiter.OpTakeUpTo, limiter.OpCharge} {
				op := take(day, kind.String(), 2)
				op.Kind = kind
				if s := do(t, store, op); s.Row.Start != edge || s.Row.Used != 2 {
					t.Errorf("%s, %v: %+v, want 2 counted from %d on", name, kind, s.Row, edge)
				}
			}
		}
	})
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

// While a process's clock is in the period, a statement decides alone, on the row of the last period as well.
func TestCalendarStatementDecides(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		policy := limiter.CalendarWindow{Limit: 9, Period: limiter.Year}
		for _, name := range []string{"first", "later"} {
			store := d.store(t, schema, nil)
			op := limiter.Op{Kind: limiter.OpTake, Name: name, Key: "k", Policy: policy, Cost: 1, Timeout: testTimeout}
			if name == "later" { // the row of an earlier period
				old := op
				old.At = time.Now().AddDate(-1, 0, 0).UnixNano()
				do(t, store, old)
			}
			l, err := limiter.New(store, name, policy, limiter.WithTimeout(testTimeout))
			must(t, err)
			for _, call := range []func(context.Context) error{
				func(ctx context.Context) error { return testenv.ErrorOf(l.Allow(ctx, "k")) },
				func(ctx context.Context) error { return testenv.ErrorOf(l.Charge(ctx, "k", 2)) },
				func(ctx context.Context) error { return testenv.ErrorOf(l.AllowUpTo(ctx, "k", 2)) },
				func(ctx context.Context) error {
					return testenv.ErrorOf(limiter.AllowAll(ctx, limiter.Claim{Limiter: l, Key: "k"}))
				},
			} {
				must(t, call(t.Context()))
			}
			if stats := store.Stats(); stats.SecondLooks != 0 {
				t.Errorf("%s: %d operations needed a second look, want 0", name, stats.SecondLooks)
			}
			if r, err := l.Peek(t.Context(), "k"); err != nil || r.Used != 6 {
				t.Errorf("%s: %+v, %v; want a count of 6", name, r, err)
			}
		}
	})
}
