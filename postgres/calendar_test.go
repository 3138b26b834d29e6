package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
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
