package opcontext_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// never is an operation that does not end by itself.
var never chan struct{}

func TestAwaitEndsWithTheTimeOfTheOperation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		timeout   time.Duration
		deadline  time.Duration // of the caller's context, 0 for none
		dialing   time.Duration // until when a connection is being made
		connected time.Duration // when there is one, 0 for never
		renewed   time.Duration // when the operation is given its time anew, 0 for never
		want      time.Duration
		canceled  bool // it counts as the caller's own end
	}{
		{name: "no connection, and none is being made", timeout: 250 * ms, want: 250 * ms},
		{name: "a connection is being made", timeout: 250 * ms, dialing: time.Hour, want: 3 * time.Second},
		{name: "a connection is being made no more", timeout: 250 * ms, dialing: 200 * ms, want: 250 * ms},
		{name: "a time limit above that of dialing", timeout: time.Minute, dialing: time.Hour, want: time.Minute},
		{name: "counted from the connection", timeout: 250 * ms, connected: 200 * ms, want: 450 * ms},
		{name: "a connection that took a second", timeout: 250 * ms, dialing: time.Hour, connected: time.Second, want: 1250 * ms},
		{name: "a connection that took a second and a bit", timeout: 250 * ms, dialing: time.Hour, connected: 1100 * ms, want: 1350 * ms},
		{name: "a connection that took long", timeout: 250 * ms, dialing: time.Hour, connected: 2900 * ms, want: 3150 * ms},
		{name: "a connection is no reason to wait for another", timeout: 250 * ms, dialing: time.Hour, connected: ms, want: 251 * ms},
		{name: "renewed", timeout: 250 * ms, renewed: 200 * ms, want: 450 * ms},
		{name: "renewed while a connection is being made", timeout: 250 * ms, dialing: time.Hour, renewed: 200 * ms, want: 450 * ms},
		{name: "renewed after the connection", timeout: 250 * ms, connected: 200 * ms, renewed: 400 * ms, want: 650 * ms},
		{name: "connected after it was renewed", timeout: 250 * ms, renewed: 200 * ms, connected: 400 * ms, want: 450 * ms},
		{name: "renewed too late", timeout: 250 * ms, renewed: 251 * ms, want: 250 * ms},
		{name: "the deadline leaves 100 ms", timeout: time.Second, deadline: 400 * ms, want: 300 * ms, canceled: true},
		{name: "also after the connection", timeout: time.Second, deadline: 400 * ms, connected: 200 * ms, want: 300 * ms, canceled: true},
		{name: "also when renewed", timeout: time.Second, deadline: 400 * ms, renewed: 200 * ms, want: 300 * ms, canceled: true},
		{name: "also while a connection is being made", timeout: 250 * ms, deadline: 400 * ms, dialing: time.Hour, want: 300 * ms},
		{name: "half of a short deadline", timeout: time.Second, deadline: 60 * ms, want: 30 * ms, canceled: true},
		{name: "also of one that is renewed", timeout: time.Second, deadline: 60 * ms, renewed: 20 * ms, want: 30 * ms, canceled: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, asked := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					parent := within(t, c.deadline)
					begin := time.Now()
					ctx, stop := (&opcontext.Deadlines{Dialing: func() bool { return time.Since(begin) < c.dialing }}).WithTimeout(parent, c.timeout)
					defer stop()
					if asked { // somebody waits in another way, too
						ctx.Done()
					}
					if c.connected > 0 {
						time.AfterFunc(c.connected, func() { opcontext.Connected(context.WithValue(ctx, ms, ms), true) })
					}
					if c.renewed > 0 {
						time.AfterFunc(c.renewed, func() { opcontext.Renew(ctx) })
					}
					ended := opcontext.Await(ctx, never)
					if got := time.Since(begin); !ended || got != c.want {
						t.Errorf("asked for Done %v: ended %v after %v, want it after %v", asked, ended, got, c.want)
					}
					if parent.Err() != nil || (opcontext.EndedByCaller(ctx) != nil) != c.canceled || ctx.Err() == nil || !opcontext.HasTimeLimit(ctx) {
						t.Errorf("asked for Done %v: the caller's context: %v, Ended: %v, Err: %v", asked, parent.Err(), opcontext.EndedByCaller(ctx), ctx.Err())
					}
					select {
					case <-ctx.Done():
					default:
						t.Errorf("asked for Done %v: Await has ended, and the context has not", asked)
					}
					err := opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
					if errors.Is(err, limiter.ErrCanceled) != c.canceled || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("asked for Done %v: Interrupted = %v", asked, err)
					}
				})
			}
		})
	}
}

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

func TestAwaitReturnsWhenTheOperationIsDone(t *testing.T) {
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

func TestAnOperationThatHasEndedIsNotStartedAnew(t *testing.T) {
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
			opcontext.Connected(ctx, true)
			opcontext.Renew(ctx)
			begin := time.Now()
			if was == nil || !opcontext.Await(ctx, never) || time.Since(begin) != 0 || !errors.Is(ctx.Err(), was) {
				t.Errorf("%s: Err was %v, is %v, and Await took %v", name, was, ctx.Err(), time.Since(begin))
			}
		})
	}
}

func TestEachWaitsForHisOwnTime(t *testing.T) {
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
