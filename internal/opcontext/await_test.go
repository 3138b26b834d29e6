package opcontext_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter/internal/opcontext"
)

// never is an operation that does not end by itself.
var never chan struct{}

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
				ctx, stop := (&opcontext.Deadlines{Dialing: func() bool { return true }}).WithTimeout(parent, timeout)
				defer stop()
				connect(ctx)
				time.AfterFunc(20*ms, cancel)
				begin := time.Now()
				if ended := opcontext.Await(ctx, never); !ended || time.Since(begin) != 20*ms {
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

func TestAwaitDone(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			ctx, stop := new(opcontext.Deadlines).WithTimeout(parent, timeout)
			defer stop()
			begin := time.Now()
			done := make(chan struct{})
			time.AfterFunc(300*ms, func() { close(done) })
			if opcontext.Await(ctx, done) || time.Since(begin) != 300*ms {
				t.Errorf("limit %v: it returned after %v, want 300ms", timeout, time.Since(begin))
			}
			cancel() // what is done is done
			<-time.After(time.Hour)
			if opcontext.Await(ctx, done) || time.Since(begin) != 300*ms+time.Hour {
				t.Errorf("limit %v: done before, and it ended all the same", timeout)
			}
		})
	}
}

func TestEndedOperationStaysEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, leave, stop func()){
		"by its time limit": func(ctx context.Context, _, _ func()) { opcontext.Await(ctx, never) },
		"by its caller":     func(_ context.Context, leave, _ func()) { leave() },
		"by stop":           func(_ context.Context, _, stop func()) { stop() },
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			ctx, stop := new(opcontext.Deadlines).WithTimeout(parent, 250*ms)
			defer stop()
			end(ctx, cancel, stop)
			was := ctx.Err()
			<-time.After(time.Hour) // no timer of its own ends it again
			opcontext.Connected(ctx, true)
			opcontext.Renew(ctx)
			begin := time.Now()
			if was == nil || !opcontext.Await(ctx, never) || time.Since(begin) != 0 || !errors.Is(ctx.Err(), was) {
				t.Errorf("%s: Err was %v, is %v, and Await took %v", name, was, ctx.Err(), time.Since(begin))
			}
		})
	}
}

func TestCallAndStatementHaveTheirOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer, stopOuter := new(opcontext.Deadlines).WithTimeout(t.Context(), 250*ms)
		defer stopOuter()
		inner, stopInner := new(opcontext.Deadlines).WithTimeout(context.WithoutCancel(outer), 500*ms)
		defer stopInner()
		begin := time.Now()
		time.AfterFunc(200*ms, func() { opcontext.Renew(inner) }) // not that of the call for which it is made
		if !opcontext.Await(outer, never) || time.Since(begin) != 250*ms {
			t.Errorf("the call ended after %v, want 250ms", time.Since(begin))
		}
		if opcontext.EndedByCaller(inner) != nil || inner.Err() != nil {
			t.Errorf("with it the statement: %v", inner.Err())
		}
		if !opcontext.Await(inner, never) || time.Since(begin) != 700*ms {
			t.Errorf("the statement ended after %v, want 700ms", time.Since(begin))
		}
	})
}
