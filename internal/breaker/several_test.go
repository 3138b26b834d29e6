package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

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

func TestABreakerIsOpenForOperationsThatUseEveryKeyThatAllFailedOnesUsed(t *testing.T) {
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

func TestWhatIsMissingInOneOfTwoTablesKeepsNobodyFromEither(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker.Breaker)
		both := func(i int) []*limiter.Op {
			return []*limiter.Op{opOf(fmt.Sprint("bucket ", i)), {Name: "name", Key: fmt.Sprint("window ", i), Policy: limiter.FixedWindow{}}}
		}
		for i := range 5 {
			throughAll(b, limiter.ErrMisconfigured, both(i)...)
		}
		if throughAll(b, nil, both(5)...) {
			t.Error("it is not open for operations on both tables")
		}
		if window := both(6)[1]; !throughAll(b, limiter.ErrMisconfigured, window) || throughAll(b, nil, window) {
			t.Error("a window is not asked once")
		}
		if !throughAll(b, nil, both(7)[0]) {
			t.Error("it is open for buckets, of which none has failed alone")
		}
	})
}
