package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

const ms = time.Millisecond

func TestALimitEndsAnOperationInItsTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		timeout   time.Duration
		deadline  time.Duration // of the caller's context, 0 for none
		dialing   bool          // as long as there is no connection
		connected time.Duration // when the connection is there, 0 for never
		want      time.Duration
		canceled  bool // it counts as the caller's own end
	}{
		{name: "no connection, and none is being made", timeout: 250 * ms, want: 250 * ms},
		{name: "a connection at once", timeout: 250 * ms, connected: 1, want: 250*ms + 1},
		{name: "counted from the connection", timeout: 250 * ms, connected: 200 * ms, want: 450 * ms},
		{name: "a connection is being made", timeout: 250 * ms, dialing: true, want: 3 * time.Second},
		{name: "a connection was made late", timeout: 250 * ms, dialing: true, connected: 2900 * ms, want: 3150 * ms},
		{name: "a time limit above that of dialing", timeout: time.Minute, dialing: true, want: time.Minute},
		{name: "the deadline leaves 100 ms", timeout: time.Second, deadline: 400 * ms, want: 300 * ms},
		{name: "also after the connection", timeout: time.Second, deadline: 400 * ms, connected: 200 * ms, want: 300 * ms},
		{name: "also while a connection is being made", timeout: 250 * ms, deadline: 400 * ms, dialing: true, want: 300 * ms},
		{name: "half of a short deadline", timeout: time.Second, deadline: 60 * ms, want: 30 * ms, canceled: true},
		{name: "a time limit within a short deadline", timeout: 10 * ms, deadline: 60 * ms, want: 10 * ms},
		{name: "a deadline just far enough", timeout: time.Second, deadline: 200 * ms, want: 100 * ms},
		{name: "a deadline beyond it", timeout: 250 * ms, deadline: time.Second, want: 250 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				parent := t.Context()
				if c.deadline > 0 {
					var cancel func()
					parent, cancel = context.WithTimeout(parent, c.deadline)
					defer cancel()
				}
				begin := time.Now()
				ctx, stop := (&sqlstore.Timekeeper{Dialing: func() bool { return c.dialing }}).Limit(parent, c.timeout)
				defer stop()
				if c.connected > 0 {
					time.AfterFunc(c.connected, func() { sqlstore.Connected(context.WithValue(ctx, ms, ms)) })
				}
				<-ctx.Done()
				if got := time.Since(begin); got != c.want {
					t.Errorf("it ended after %v, want %v", got, c.want)
				}
				if parent.Err() != nil || (sqlstore.Ended(ctx) != nil) != c.canceled {
					t.Errorf("the caller's context: %v, Ended: %v", parent.Err(), sqlstore.Ended(ctx))
				}
				err := sqlstore.Interrupted(ctx, limiter.ErrNotApplied, errBroken)
				if errors.Is(err, limiter.ErrCanceled) != c.canceled || errors.Is(err, limiter.ErrNotApplied) == c.canceled ||
					!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
					t.Errorf("Interrupted = %v", err)
				}
			})
		})
	}
}

func TestALimitLeavesACallersEndToTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		ctx, stop := new(sqlstore.Timekeeper).Limit(parent, time.Second)
		defer stop()
		if sqlstore.Ended(ctx) != nil {
			t.Error("Ended before anything did")
		}
		time.AfterFunc(ms, cancel)
		<-ctx.Done()
		for _, class := range []error{limiter.ErrNotApplied, limiter.ErrOutcomeUnknown} {
			for _, cause := range []error{nil, errBroken} {
				err := sqlstore.Interrupted(ctx, class, cause)
				if !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) ||
					errors.Is(err, limiter.ErrOutcomeUnknown) != (class == limiter.ErrOutcomeUnknown) {
					t.Errorf("Interrupted(%v, %v) = %v", class, cause, err)
				}
			}
		}
	})
}

func TestALimitThatWasStoppedDoesNothingMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := new(sqlstore.Timekeeper).Limit(t.Context(), time.Second)
		stop()
		sqlstore.Connected(ctx) // must not start the timer again: the bubble would see it
		<-time.After(time.Hour) // it costs nothing in a bubble
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("it ended by %v", context.Cause(ctx))
		}
	})
}

func TestNoTimeLimitIsTheCallersContext(t *testing.T) {
	t.Parallel()
	ctx, stop := new(sqlstore.Timekeeper).Limit(t.Context(), 0)
	defer stop()
	if ctx != t.Context() {
		t.Error("a context without a limit is another one")
	}
	sqlstore.Connected(ctx)
}
