package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/breaker"
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
			throughAll(b, class, of...)
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
