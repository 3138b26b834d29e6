package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/breaker"
	"github.com/sqlimit/limiter/internal/testenv"
)

// throughAll sends an operation on keys that ends with err, and reports whether it was let through.
func throughAll(b *breaker.Breaker, err error, ops ...*limiter.Op) bool {
	pass, refused := b.Enter(context.Background(), ops...)
	if refused == nil {
		pass.Leave(err, ops...)
	}
	return refused == nil
}

func TestOpenForOperationsOnEveryFailedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, locked, other := opOf("a"), opOf("locked"), opOf("other")
		for _, c := range []struct {
			name   string
			failed func(i int) []*limiter.Op
			open   map[string][]*limiter.Op
			closed map[string][]*limiter.Op
		}{
			{
				"the same keys each time",
				func(int) []*limiter.Op { return []*limiter.Op{a, locked} },
				map[string][]*limiter.Op{"both": {locked, a}, "both and another": {other, locked, a}},
				map[string][]*limiter.Op{"one": {a}, "the other": {locked}, "one and another": {locked, other}},
			},
			{
				"one key each time",
				func(i int) []*limiter.Op { return []*limiter.Op{opOf(fmt.Sprint(i)), locked} },
				map[string][]*limiter.Op{"that": {locked}, "that and another": {other, locked}},
				map[string][]*limiter.Op{"another": {other}, "one of those": {opOf("1"), a}},
			},
			{
				"no key each time",
				func(i int) []*limiter.Op { return []*limiter.Op{opOf(fmt.Sprint(i)), opOf(fmt.Sprint(i + 1))} },
				map[string][]*limiter.Op{"another": {other}, "several": {a, other}},
				nil,
			},
		} {
			trip := func() *breaker.Breaker {
				b := new(breaker.Breaker)
				for i := range 5 {
					throughAll(b, limiter.ErrOutcomeUnknown, c.failed(i)...)
				}
				return b
			}
			for name, ops := range c.open {
				if throughAll(trip(), nil, ops...) {
					t.Errorf("%s: it is not open for %s", c.name, name)
				}
			}
			for name, ops := range c.closed {
				if !throughAll(trip(), nil, ops...) {
					t.Errorf("%s: it is open for %s", c.name, name)
				}
			}
		}
	})
}

// A right or a column that is missing in one table may exist in the other.
func TestTables(t *testing.T) {
	t.Parallel()
	bucket := func(i int) *limiter.Op { return opOf(fmt.Sprint("bucket ", i)) }
	window := func(i int) *limiter.Op {
		return &limiter.Op{Name: "name", Key: fmt.Sprint("window ", i), Policy: limiter.FixedWindow{}}
	}
	fails := func(b *breaker.Breaker, class error, ops ...func(i int) *limiter.Op) {
		for i := range 5 {
			var of []*limiter.Op
			for _, op := range ops {
				of = append(of, op(i))
			}
			throughAll(b, fmt.Errorf("%w: why", class), of...)
		}
	}
	wantOpen := func(t *testing.T, b *breaker.Breaker, open bool, ops ...*limiter.Op) {
		t.Helper()
		if throughAll(b, limiter.ErrMisconfigured, ops...) == open {
			t.Errorf("the breaker is open for %d operations: %v, want %v", len(ops), !open, open)
		}
	}
	t.Run("a failure of one table is not asked for the other", func(t *testing.T) {
		for class, both := range map[error]bool{limiter.ErrMisconfigured: false, limiter.ErrNotApplied: true} {
			b := new(breaker.Breaker)
			fails(b, class, bucket)
			wantOpen(t, b, true, bucket(9))
			wantOpen(t, b, both, window(8))
			wantOpen(t, b, true, window(9)) // it has failed as well
		}
	})
	t.Run("a failure of operations on both says nothing about either", func(t *testing.T) {
		b := new(breaker.Breaker)
		fails(b, limiter.ErrMisconfigured, bucket, window)
		wantOpen(t, b, true, bucket(9), window(9))
		wantOpen(t, b, false, window(8))
		wantOpen(t, b, true, window(9))
		wantOpen(t, b, false, bucket(8))
	})
	t.Run("an answer ends the failures of both", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, failing := range []func(i int) *limiter.Op{bucket, window} {
				b := new(breaker.Breaker)
				fails(b, limiter.ErrMisconfigured, bucket)
				fails(b, limiter.ErrMisconfigured, window)
				<-time.After(time.Second)
				if !throughAll(b, nil, failing(0)) {
					t.Fatal("no probe was let through after a second")
				}
				fails(b, limiter.ErrMisconfigured, failing)
				wantOpen(t, b, true, failing(9))
				for _, op := range []*limiter.Op{bucket(8), window(8)} {
					wantOpen(t, b, limiter.KindOf(op.Policy) == limiter.KindOf(failing(0).Policy), op)
				}
			}
		})
	})
}

// within is an operation on a key of its own with a time limit.
func within(timeout time.Duration, key any) *limiter.Op {
	op := opOf(fmt.Sprint(key))
	op.Timeout = timeout
	return op
}

func TestShortTimeLimit(t *testing.T) {
	t.Parallel()
	timedOut := fmt.Errorf("%w: %w", limiter.ErrOutcomeUnknown, context.DeadlineExceeded)
	for _, c := range []struct {
		name    string
		timeout time.Duration
		took    time.Duration
		err     error
		opens   int // the operation whose failure opens the breaker, 0 for none
	}{
		{"a timeout does not count", 50*ms - 1, 50*ms - 1, timedOut, 0},
		{"a timeout of a longer one counts", 50 * ms, 50 * ms, timedOut, 5},
		{"no limit is not short", 0, 50 * ms, timedOut, 5},
		{"a late timeout does not count", ms, time.Second, timedOut, 0},
		{"a timeout of a connection that is not made counts", ms, time.Second + ms, timedOut, 2},
		{"another error counts", ms, ms, limiter.ErrNotApplied, 5},
		{"a second more than the time limit counts at once", 250 * ms, 1250 * ms, limiter.ErrNotApplied, 2},
		{"less than a second more does not", 250 * ms, 1249 * ms, limiter.ErrNotApplied, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, opens := new(breaker.Breaker), 0
				for i := 1; i <= 9 && opens == 0; i++ {
					op := within(c.timeout, i)
					pass, err := b.Enter(t.Context(), op)
					testenv.Must(t, err)
					<-time.After(c.took)
					pass.Leave(c.err, op)
					if open, _ := b.Stats(); open {
						opens = i
					}
				}
				testenv.Equal(t, opens, c.opens, "the failure that opened the breaker")
			})
		})
	}

	for name, short := range map[string]struct{ timeout, deadline time.Duration }{
		"by its limit":    {timeout: 50*ms - 1, deadline: time.Hour},
		"by its deadline": {timeout: 250 * ms, deadline: 100*ms - 1},
	} {
		// sends reports whether the operation is let through, which then ends with err.
		sends := func(t *testing.T, b *breaker.Breaker, err error) bool {
			ctx, cancel := context.WithTimeout(t.Context(), short.deadline)
			defer cancel()
			op := within(short.timeout, "short")
			pass, refused := b.Enter(ctx, op)
			if refused == nil {
				pass.Leave(err, op)
			}
			return refused == nil
		}
		left := fmt.Errorf("%w: %w", limiter.ErrCanceled, timedOut)
		t.Run("is let through only after a second without a probe "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := opened(limiter.ErrNotApplied)
				begin := time.Now()
				var sent []time.Duration
				for time.Since(begin) < 4*time.Second {
					<-time.After(5 * ms)
					if sends(t, b, left) {
						sent = append(sent, time.Since(begin))
					}
				}
				testenv.Equal(t, sent, []time.Duration{1050 * ms, 2050 * ms, 3050 * ms}, "let through after")
				if !through(b, "k", limiter.ErrNotApplied) {
					t.Error("it postponed the probe")
				}
				<-time.After(1100 * ms)
				if !sends(t, b, nil) || !through(b, "k", nil) || !through(b, "k", nil) {
					t.Error("its answer did not close the breaker")
				}
			})
		})
	}
}
