package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
)

// load counts the answers of callers.
type load struct {
	mu      sync.Mutex
	length  time.Duration
	decided int // by the store, within the length
	granted int // by the store
	passed  int // by the failure policy
	busy    int // ErrKeyBusy
	failed  int // another error
}

// ask has callers send one call after another, for a length of time.
func ask(callers int, length time.Duration, call func(caller int) (limiter.Result, error)) *load {
	y := &load{length: length}
	end := time.Now().Add(length)
	each(callers, func(caller int) {
		for time.Now().Before(end) {
			res, err := call(caller)
			y.add(res, err, time.Now().Before(end))
		}
	})
	return y
}

func (y *load) add(res limiter.Result, err error, within bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case errors.Is(err, limiter.ErrKeyBusy):
		y.busy++
	case err != nil:
		y.failed++
	case res.Source != limiter.SourceStore:
		y.passed++
	case within:
		y.decided++
	}
	if res.Allowed && res.Source == limiter.SourceStore {
		y.granted++
	}
}

// rate is the number of decisions per second.
func (y *load) rate() float64 { return float64(y.decided) / y.length.Seconds() }

func (y *load) String() string {
	return fmt.Sprintf("%.0f decisions/s, %d granted, %d passed, %d busy, %d failed", y.rate(), y.granted, y.passed, y.busy, y.failed)
}

// failOpen makes a limiter with FailOpen. The test logs the first failure of the store, because
// FailOpen hides it from the caller.
func failOpen(t *testing.T, store limiter.Store, policy limiter.Policy, timeout time.Duration) *limiter.Limiter {
	t.Helper()
	var first sync.Once
	return newLimiter(t, store, policy, limiter.WithTimeout(timeout), limiter.FailOpen(),
		limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
			if limiter.StoreFailed(d.Err) {
				first.Do(func() { t.Logf("the store failed first with: %v", d.Err) })
			}
		}))
}

// allowAll is [limiter.AllowAll] of keys of one limiter.
func allowAll(t *testing.T, l *limiter.Limiter, keys ...string) (limiter.Result, error) {
	t.Helper()
	claims := make([]limiter.Claim, len(keys))
	for i, key := range keys {
		claims[i] = limiter.Claim{Limiter: l, Key: key}
	}
	res, err := limiter.AllowAll(t.Context(), claims...)
	return res.Result, err
}

// wantConns checks that a pool has made at most five connections more than it may have at a time.
func wantConns(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	if n, most := p.Stat().NewConnsCount(), int64(p.Config().MaxConns)+5; n > most {
		t.Errorf("%d connections were made, want at most %d", n, most)
	}
}

// distant is a connection whose round trips take 1 ms longer. So 500 callers of one key overload it
// on a fast machine too.
type distant struct{ net.Conn }

func (c distant) Write(b []byte) (int, error) {
	<-time.After(time.Millisecond)
	return c.Conn.Write(b)
}

// patience is the time limit of callers that overload a key. A busy machine may need the default of
// 250 ms for one statement, and FailOpen would then be right to answer.
const patience = 750 * time.Millisecond

// TestOverload runs beside no other test, because it keeps the machine busy.
func TestOverload(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		schema := d.schema(t)
		sizes, limits := []int{50, 500, 1000}, []int64{5, 1 << 17}
		if raceEnabled { // a statement then takes longer than a time limit now and then
			sizes, limits = sizes[:1], nil
		}
		for _, callers := range sizes {
			for _, size := range []int32{4, 16} {
				t.Run(fmt.Sprint(callers, " callers on a pool of ", size), func(t *testing.T) {
					passNoLimit(t, d, schema, callers, size)
				})
			}
		}
		for _, limit := range limits {
			t.Run(fmt.Sprint("1000 callers of a limit of ", limit, " pass nothing beside 64"), func(t *testing.T) {
				p := pool(t, d.dsn, few(4))
				l := failOpen(t, storeOn(t, p, schema), slow(limit), patience)
				one := func(int) (limiter.Result, error) { return allowAll(t, l, t.Name()) }
				few, many := ask(64, time.Second, one), ask(1000, time.Second, one)
				t.Logf("%v, and %v: %.2f of the decisions", few, many, many.rate()/few.rate())
				if few.passed+many.passed > 0 || many.decided == 0 {
					t.Errorf("%d and %d passed, want none, and that the store decides", few.passed, many.passed)
				}
				wantConns(t, p)
			})
		}
	})
}

// passNoLimit has callers of one key ask for more than its limit, for longer than their time limit.
func passNoLimit(t *testing.T, d *database, schema string, callers int, size int32) {
	t.Helper()
	for _, c := range []struct {
		name       string
		own, mixed bool // AllowAll also names a key of its caller; every second caller uses Allow
	}{
		{"AllowAll of one key passes nothing", false, false},
		{"AllowAll of one key and one of each caller passes nothing", true, false},
		{"AllowAll and Allow of one key pass nothing", false, true},
		{"AllowAll of one key and one of each caller, and Allow, pass nothing", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := pool(t, d.dsn, func(config *pgxpool.Config) {
				config.MaxConns = size
				wrap(config.ConnConfig, func(conn net.Conn) net.Conn { return distant{conn} })
			})
			l := failOpen(t, storeOn(t, p, schema), slow(5), patience)
			y := ask(callers, time.Second, func(caller int) (limiter.Result, error) {
				if c.mixed && caller%2 == 0 {
					return l.Allow(t.Context(), t.Name())
				}
				keys := []string{t.Name()}
				if c.own { // half of them come before the shared key in the order of locks
					keys = append(keys, fmt.Sprintf("%c%s%d", "AZ"[caller/2%2], t.Name(), caller))
				}
				return allowAll(t, l, keys...)
			})
			t.Logf("%v; %d connections", y, p.Stat().NewConnsCount())
			if y.granted > 5 || y.passed > 0 {
				t.Errorf("%d were granted and %d passed, want 5 and none", y.granted, y.passed)
			}
			wantConns(t, p)
		})
	}
}
