package opcontext_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter/internal/opcontext"
)

// await waits for an operation that is never answered.
func await(ctx context.Context) (ended bool) { return opcontext.Await(ctx, make(chan bool, 2)) }

func TestAwaitEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(ctx context.Context){
		"without a connection": func(context.Context) {},
		"with a connection":    connected,
		"renewed":              func(ctx context.Context) { opcontext.Renew(ctx) },
		"during a statement":   func(ctx context.Context) { _ = opcontext.Begin(ctx, false, 0) },
	} {
		for _, timeout := range []time.Duration{0, time.Second} { // 0 is the caller's context itself
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(t.Context())
				ctx := (&opcontext.Deadlines{Dialing: func() bool { return true }}).WithTimeout(parent, timeout)
				defer opcontext.Stop(ctx)
				connect(ctx)
				time.AfterFunc(20*ms, cancel)
				begin := time.Now()
				if ended := await(ctx); !ended || time.Since(begin) != 20*ms {
					t.Errorf("%s, limit %v: ended %v after %v, want it after 20ms", name, timeout, ended, time.Since(begin))
				}
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
		if !await(outer) || time.Since(begin) != 250*ms {
			t.Errorf("the call ended after %v, want 250ms", time.Since(begin))
		}
		if opcontext.EndedByCaller(inner) != nil || inner.Err() != nil {
			t.Errorf("with it the statement: %v", inner.Err())
		}
		if !await(inner) || time.Since(begin) != 700*ms {
			t.Errorf("the statement ended after %v, want 700ms", time.Since(begin))
		}
	})
}
