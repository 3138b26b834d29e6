package opcontext_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// ends starts an operation with a time limit, and returns a channel that gets the time at which it ends.
func ends(t *testing.T, deadlines *opcontext.Deadlines, timeout time.Duration) <-chan time.Time {
	t.Helper()
	ctx := deadlines.WithTimeout(t.Context(), timeout)
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	return ended
}

func TestEachEndsInTime(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{
		"the first first": {1, 2, 3, 4, 5}, "the last first": {5, 4, 3, 2, 1}, "mixed": {2, 5, 1, 4, 3}, "also mixed": {1, 5, 2, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				deadlines, began := new(opcontext.Deadlines), time.Now()
				ended := make([]<-chan time.Time, len(order))
				for i, n := range order {
					ended[i] = ends(t, deadlines, time.Duration(n)*time.Microsecond)
				}
				for i, n := range order {
					testenv.Equal(t, (<-ended[i]).Sub(began), time.Duration(n)*time.Microsecond, "the end of", n)
				}
			})
		})
	}
}

// With thousands of operations, those that end in quick succession end together.
func TestManyEndTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadlines, began := new(opcontext.Deadlines), time.Now()
		for range 2500 {
			ends(t, deadlines, time.Second)
		}
		first, second, third := ends(t, deadlines, ms), ends(t, deadlines, ms+1), ends(t, deadlines, 2*ms)
		for i, want := range []time.Duration{ms, ms + 200*time.Microsecond, 2 * ms} {
			testenv.Equal(t, (<-[]<-chan time.Time{first, second, third}[i]).Sub(began), want, "the end of operation", i)
		}
		<-time.After(time.Second)
	})
}

// The longest time limit sets no timer that replaces an earlier one.
func TestLongestLimitDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadlines, began := new(opcontext.Deadlines), time.Now()
		ended := ends(t, deadlines, 250*ms)
		longest := deadlines.WithTimeout(t.Context(), math.MaxInt64)
		defer opcontext.Stop(longest)
		longest.Done()
		testenv.Equal(t, (<-ended).Sub(began), 250*ms, "it ended after")
	})
}

// A store may be made outside a bubble of testing/synctest, and used inside.
func TestTimerOfABubble(t *testing.T) {
	t.Parallel()
	deadlines := new(opcontext.Deadlines)
	synctest.Test(t, func(t *testing.T) {
		ctx := deadlines.WithTimeout(t.Context(), time.Hour)
		ctx.Done()
		opcontext.Stop(ctx)
	})
	select {
	case <-ends(t, deadlines, ms):
	case <-time.After(10 * time.Second):
		t.Error("after the bubble, an operation of 1 ms did not end within 10 s")
	}
}

// await waits for an operation that is never answered.
func await(ctx context.Context) (ended bool) { return opcontext.Await(ctx, make(chan bool, 2)) }

func TestAwaitEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(ctx context.Context){
		"without a connection": func(context.Context) {},
		"with a connection":    connected,
		"renewed":              func(ctx context.Context) { opcontext.Renew(ctx) },
		"during a statement":   func(ctx context.Context) { _ = opcontext.Begin(ctx, false, 0, 0) },
	} {
		for _, timeout := range []time.Duration{0, time.Second} { // 0 is the caller's context itself
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(t.Context())
				ctx := (&opcontext.Deadlines{Dialing: func() bool { return true }}).WithTimeout(parent, timeout)
				defer opcontext.Stop(ctx)
				connect(ctx)
				time.AfterFunc(20*ms, cancel)
				begin := time.Now()
				testenv.Equal(t, await(ctx), true, name, "with the limit", timeout, "ends")
				testenv.Equal(t, time.Since(begin), 20*ms, name, "with the limit", timeout, "ends after")
				// A statement may go on for a while, but nothing else for a caller who has left.
				continues := timeout > 0 && name == "during a statement"
				if err := opcontext.EndedByCaller(ctx); !errors.Is(err, context.Canceled) || (ctx.Err() == nil) != continues {
					t.Errorf("%s, limit %v: Ended: %v, Err: %v, want Canceled", name, timeout, err, ctx.Err())
				}
			})
		}
	}
}

func TestEndedOperationStaysEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, leave func()){
		"by its time limit": func(ctx context.Context, _ func()) { await(ctx) },
		"by its caller":     func(_ context.Context, leave func()) { leave() },
		"by Stop":           func(ctx context.Context, _ func()) { opcontext.Stop(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			ctx := new(opcontext.Deadlines).WithTimeout(parent, 250*ms)
			defer opcontext.Stop(ctx)
			end(ctx, cancel)
			was := ctx.Err()
			<-time.After(time.Hour) // no timer of its own ends it again
			opcontext.Connected(ctx, true)
			opcontext.Renew(ctx)
			begin := time.Now()
			if was == nil || !await(ctx) || time.Since(begin) != 0 || !errors.Is(ctx.Err(), was) {
				t.Errorf("%s: Err was %v, is %v, and Await took %v", name, was, ctx.Err(), time.Since(begin))
			}
		})
	}
}

func TestCallAndStatementHaveTheirOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer := new(opcontext.Deadlines).WithTimeout(t.Context(), 250*ms)
		defer opcontext.Stop(outer)
		inner := new(opcontext.Deadlines).WithTimeout(context.WithoutCancel(outer), 500*ms)
		defer opcontext.Stop(inner)
		begin := time.Now()
		time.AfterFunc(200*ms, func() { opcontext.Renew(inner) }) // not that of the call for which it is made
		testenv.Equal(t, await(outer), true, "the call ended")
		testenv.Equal(t, time.Since(begin), 250*ms, "the end of the call")
		testenv.Equal(t, opcontext.EndedByCaller(inner), nil, "EndedByCaller of the statement, when the call has ended")
		testenv.Equal(t, inner.Err(), nil, "Err of the statement, when the call has ended")
		testenv.Equal(t, await(inner), true, "the statement ended")
		testenv.Equal(t, time.Since(begin), 700*ms, "the end of the statement")
	})
}
