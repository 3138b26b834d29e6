package prove_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// oneKey is a limiter on a store of its own, and one key of it.
type oneKey struct {
	*limiter.Limiter
	key string
	dsn string // of the server itself
}

func newOneKey(t *testing.T, n *network, r *campaign.Round, dsn string, timeout time.Duration) oneKey {
	t.Helper()
	return keyOn(t, n, r, openStore(t, dsn), timeout)
}

func keyOn(t *testing.T, n *network, r *campaign.Round, store limiter.Store, timeout time.Duration) oneKey {
	t.Helper()
	l, err := limiter.New(store, "one-key", kinds.Lasting[0].Policy, limiter.WithTimeout(timeout))
	must(t, err)
	return oneKey{l, keyOf(r.Seed), n.server.DSN()}
}

func (k oneKey) spent(t *testing.T) int64 {
	t.Helper()
	conn := connection(t, k.dsn)
	defer conn.Close(context.Background())
	stored, err := tables.Spent(t.Context(), conn, k.Name(), k.key)
	must(t, err)
	return stored[k.key]
}

// works takes until it is granted, and keeps how long that took. A fault has just ended.
func (k oneKey) works(t *testing.T, r *campaign.Round) {
	t.Helper()
	began := time.Now()
	for {
		res, err := k.Allow(t.Context(), "works")
		took := time.Since(began)
		if err == nil && res.Allowed {
			r.Most("recovery", took)
			return
		}
		if took > recovery {
			t.Fatalf("it does not work again: %v", err)
		}
		wait(t.Context(), 5*time.Millisecond)
	}
}

// fails takes once, which is to fail within limit in one of some classes. What was charged
// agrees with it.
func (k oneKey) fails(t *testing.T, r *campaign.Round, limit time.Duration, during func(), classes ...string) {
	t.Helper()
	_ = k.failure(t, r, limit, during, classes...) // it was looked at
}

// failure is fails, and returns the error.
func (k oneKey) failure(t *testing.T, r *campaign.Round, limit time.Duration, during func(), classes ...string) error {
	t.Helper()
	before := k.spent(t)
	late := newTimerDelay()
	began := time.Now()
	type answer struct {
		res  limiter.Result
		err  error
		took time.Duration
	}
	answered := make(chan answer, 1)
	go func() {
		res, err := k.Allow(t.Context(), k.key)
		answered <- answer{res, err, time.Since(began)}
	}()
	if during != nil {
		during()
	}
	a := <-answered
	lag := late.stop()
	r.Most("answer", a.took)
	r.Most("answer later than its limit", max(0, a.took-limit))
	if a.took > limit+lateness()+lag {
		t.Errorf("it was answered after %v, want at most %v", a.took, limit)
	}
	class := outcome.Of(a.res.Allowed, a.err)
	r.Count(campaign.Operations, 1)
	r.Count("meanwhile "+class, 1)
	if !slices.Contains(classes, class) {
		t.Errorf("it is %s, want %s: %v", class, strings.Join(classes, " or "), a.err)
	}
	k.charged(t, r, before, map[string]int64{class: 1})
	return a.err
}

// charged compares what is stored with some answers. What is charged later on is the
// next one's.
func (k oneKey) charged(t *testing.T, r *campaign.Round, before int64, told map[string]int64) {
	t.Helper()
	quiet(t, k.dsn)
	certain, possible := outcome.Bounds(told)
	charges := k.spent(t) - before
	r.Count(campaign.Unknown, possible)
	r.None(campaign.LostTakes, max(0, certain-charges))
	r.None(campaign.DoubleCharges, max(0, charges-certain-possible))
}

// hold has somebody lock the row of the key in a transaction that does nothing more,
// until release is called.
func (k oneKey) hold(t *testing.T) (release func()) {
	t.Helper()
	return holdBy(t, k.dsn, "SELECT FROM limiter_token_buckets WHERE limiter = $1 AND key = $2 FOR UPDATE", k.Name(), []byte(k.key))
}

// holdBy has somebody do something in a transaction that stays open until release is called.
func holdBy(t *testing.T, dsn, sql string, args ...any) (release func()) {
	t.Helper()
	conn := connection(t, dsn)
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), sql, args...)
	}
	must(t, err)
	return func() { _ = conn.Close(context.Background()) }
}

// blocked waits until a number of sessions wait for locks.
func (k oneKey) blocked(t *testing.T, sessions int) {
	t.Helper()
	conn := connection(t, k.dsn)
	defer conn.Close(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for n := -1; n < sessions; wait(ctx, time.Millisecond) {
		must(t, conn.QueryRow(ctx, "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted").Scan(&n))
	}
}
