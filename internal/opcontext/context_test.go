package opcontext_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

const ms = time.Millisecond

// within is the context of the test with a deadline, or without one if that is 0.
func within(t *testing.T, deadline time.Duration) context.Context {
	t.Helper()
	if deadline == 0 {
		return t.Context()
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		timeout   time.Duration
		deadline  time.Duration // of the caller's context, 0 for none
		dialing   time.Duration // until when a connection is being made
		connected time.Duration // when there is one, 0 for never
		renewed   time.Duration // when the operation gets its time again, 0 for never
		want      time.Duration
		canceled  bool // it counts as the caller's own end
	}{
		{name: "no connection, and none is being made", timeout: 250 * ms, want: 250 * ms},
		{name: "a connection at once", timeout: 250 * ms, connected: 1, want: 250*ms + 1},
		{name: "counted from the connection", timeout: 250 * ms, connected: 200 * ms, want: 450 * ms},
		{name: "a connection is being made", timeout: 250 * ms, dialing: time.Hour, want: 3 * time.Second},
		{name: "a connection is being made no more", timeout: 250 * ms, dialing: 200 * ms, want: 250 * ms},
		{name: "a connection is made, but for another operation", timeout: 250 * ms, dialing: 270 * ms, want: 600 * ms},
		{name: "a connection is on its way", timeout: 250 * ms, dialing: 270 * ms, connected: 590 * ms, want: 840 * ms},
		{name: "a connection was made late", timeout: 250 * ms, dialing: time.Hour, connected: 2900 * ms, want: 3150 * ms},
		{name: "a connection is no reason to wait for another", timeout: 250 * ms, dialing: time.Hour, connected: ms, want: 251 * ms},
		{name: "a time limit above that of dialing", timeout: time.Minute, dialing: time.Hour, want: time.Minute},
		{name: "a deadline that leaves all of the time limit", timeout: 250 * ms, deadline: 350 * ms, want: 250 * ms},
		{name: "a deadline that leaves a nanosecond less", timeout: 250 * ms, deadline: 350*ms - 1, want: 250*ms - 1, canceled: true},
		{name: "a deadline that leaves less after the connection", timeout: 250 * ms, deadline: 400 * ms, connected: 100 * ms, want: 300 * ms},
		{name: "a deadline that leaves all after the connection", timeout: 250 * ms, deadline: 450 * ms, connected: 100 * ms, want: 350 * ms},
		{name: "a connection is being made for longer than the deadline", timeout: 250 * ms, deadline: 400 * ms, dialing: time.Hour, want: 300 * ms},
		{name: "a connection is being made, and the deadline leaves less", timeout: 250 * ms, deadline: 300 * ms, dialing: time.Hour, want: 200 * ms, canceled: true},
		{name: "a connection was made late, and the deadline leaves less", timeout: 250 * ms, deadline: time.Second, dialing: time.Hour, connected: 800 * ms, want: 900 * ms},
		{name: "half of a short deadline", timeout: time.Second, deadline: 60 * ms, want: 30 * ms, canceled: true},
		{name: "half of a short deadline, also if renewed", timeout: time.Second, deadline: 60 * ms, renewed: 20 * ms, want: 30 * ms, canceled: true},
		{name: "a time limit within a short deadline", timeout: 10 * ms, deadline: 60 * ms, want: 10 * ms},
		{name: "the longest time limit", timeout: math.MaxInt64, deadline: time.Second, want: 900 * ms, canceled: true},
		{name: "the longest time limit, while a connection is being made", timeout: math.MaxInt64, deadline: 10 * time.Second, dialing: time.Hour, want: 9900 * ms, canceled: true},
		{name: "the longest time limit, with a connection", timeout: math.MaxInt64, deadline: 10 * time.Second, connected: ms, want: 9900 * ms, canceled: true},
		{name: "renewed", timeout: 250 * ms, renewed: 240 * ms, want: 490 * ms},
		{name: "renewed while a connection is being made", timeout: 250 * ms, dialing: time.Hour, renewed: 200 * ms, want: 450 * ms},
		{name: "renewed after the connection", timeout: 250 * ms, connected: 200 * ms, renewed: 400 * ms, want: 650 * ms},
		{name: "connected after it was renewed", timeout: 250 * ms, renewed: 200 * ms, connected: 400 * ms, want: 450 * ms},
		{name: "renewed too late", timeout: 250 * ms, renewed: 251 * ms, want: 250 * ms},
		{name: "renewed, and the deadline leaves all", timeout: 250 * ms, deadline: time.Second, renewed: 200 * ms, want: 450 * ms},
		{name: "renewed, and the deadline leaves less", timeout: 250 * ms, deadline: 400 * ms, renewed: 200 * ms, want: 300 * ms, canceled: true},
	} {
		for how, wait := range map[string]func(ctx context.Context){
			"Await":          func(ctx context.Context) { await(ctx) },
			"Done":           func(ctx context.Context) { <-ctx.Done() },
			"Done and Await": func(ctx context.Context) { ctx.Done(); await(ctx) },
		} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					parent, begin := within(t, c.deadline), time.Now()
					ctx := (&opcontext.Deadlines{Dialing: func() bool { return time.Since(begin) < c.dialing }}).WithTimeout(parent, c.timeout)
					defer opcontext.Stop(ctx)
					connect := func(fresh bool) { opcontext.Connected(context.WithValue(ctx, ms, ms), fresh) }
					if how == "Done" {
						connect = func(fresh bool) { _ = opcontext.Begin(ctx, fresh, 0, 0) }
					}
					if c.connected > 0 {
						time.AfterFunc(c.connected, func() { connect(c.connected < c.timeout) })
					}
					if c.renewed > 0 {
						time.AfterFunc(c.renewed, func() { opcontext.Renew(ctx) })
					}
					wait(ctx)
					testenv.Equal(t, time.Since(begin), c.want, "after which time it ended")
					testenv.Equal(t, [2]time.Time{opcontext.Began(ctx), opcontext.Began(parent)}, [2]time.Time{begin.Add(c.want - c.timeout)}, "Began")
					select {
					case <-ctx.Done():
					default:
						t.Error("the context has not ended")
					}
					if parent.Err() != nil || (opcontext.EndedByCaller(ctx) != nil) != c.canceled || ctx.Err() == nil || !opcontext.HasTimeLimit(ctx) {
						t.Errorf("the caller's context: %v, EndedByCaller: %v, Err: %v", parent.Err(), opcontext.EndedByCaller(ctx), ctx.Err())
					}
					for _, cause := range []error{nil, fmt.Errorf("the driver: %w", context.Canceled)} {
						err := opcontext.Interrupted(ctx, limiter.ErrNotApplied, cause)
						if errors.Is(err, limiter.ErrCanceled) != c.canceled || errors.Is(err, limiter.ErrNotApplied) == c.canceled ||
							!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
							t.Errorf("Interrupted = %v, want DeadlineExceeded, and ErrCanceled %v", err, c.canceled)
						}
						if c.canceled && !strings.Contains(err.Error(), "the time limit of "+c.timeout.String()) {
							t.Errorf("the error does not name the time limit that the deadline cut short: %v", err)
						}
					}
				})
			})
		}
	}
}

func TestWaitReason(t *testing.T) {
	t.Parallel()
	const full = "the pool is full"
	for name, c := range map[string]struct {
		begun    func(ctx context.Context)
		deadline time.Duration
		class    error
		says     bool
	}{
		"no connection":                   {func(context.Context) {}, time.Hour, limiter.ErrNotApplied, true},
		"no connection, a short deadline": {func(context.Context) {}, 300 * ms, limiter.ErrNotApplied, true},
		"a connection":                    {connected, time.Hour, limiter.ErrNotApplied, false},
		"it was sent":                     {func(context.Context) {}, time.Hour, limiter.ErrOutcomeUnknown, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			ctx := (&opcontext.Deadlines{WaitReason: func() string { return full }}).WithTimeout(parent, 250*ms)
			defer opcontext.Stop(ctx)
			c.begun(ctx)
			<-ctx.Done()
			for _, cause := range []error{nil, context.Canceled, errBroken} {
				err := opcontext.Interrupted(ctx, c.class, cause)
				if says := strings.Contains(err.Error(), full); says != c.says || !errors.Is(err, context.DeadlineExceeded) ||
					strings.Contains(err.Error(), ": :") || strings.Contains(err.Error(), "canceled") && c.deadline == time.Hour {
					t.Errorf("%s: %v; want the reason: %v, DeadlineExceeded, and no mention of a cancellation", name, err, c.says)
				}
			}
		})
	}
	// Await itself learns that the caller has left. Its error is the caller's.
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(t.Context())
		ctx := (&opcontext.Deadlines{WaitReason: func() string { return full }}).WithTimeout(parent, 10*ms)
		defer opcontext.Stop(ctx)
		time.AfterFunc(5*ms, leave)
		await(ctx)
		<-time.After(6 * ms)
		if err := opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil); strings.Contains(err.Error(), full) || !errors.Is(err, context.Canceled) {
			t.Errorf("the caller has left: %v, want Canceled without the reason", err)
		}
	})
}

func TestEndOfTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		ctx := new(opcontext.Deadlines).WithTimeout(parent, time.Second)
		defer opcontext.Stop(ctx)
		testenv.Equal(t, opcontext.EndedByCaller(ctx), nil, "EndedByCaller before anything ended")
		begin, done := time.Now(), ctx.Done()
		time.AfterFunc(ms, cancel)
		if <-done; ctx.Done() != done || time.Since(begin) != ms {
			t.Errorf("it ended after %v, want 1ms, by the same channel", time.Since(begin))
		}
		for _, class := range []error{limiter.ErrNotApplied, limiter.ErrOutcomeUnknown} {
			for _, cause := range []error{nil, errBroken} {
				err := opcontext.Interrupted(ctx, class, cause)
				if !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) ||
					errors.Is(err, limiter.ErrOutcomeUnknown) != (class == limiter.ErrOutcomeUnknown) {
					t.Errorf("Interrupted(%v, %v) = %v", class, cause, err)
				}
			}
		}
	})
}

// A timer that an earlier one replaced stays set until it fires. An operation that ended is not kept.
func TestTimersDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deadlines := new(opcontext.Deadlines)
		far := deadlines.WithTimeout(t.Context(), math.MaxInt64)
		defer opcontext.Stop(far)
		far.Done()
		objects := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapObjects
		}
		const operations = 20000
		before := objects()
		for range operations {
			near := deadlines.WithTimeout(t.Context(), 250*ms)
			<-near.Done()
			opcontext.Stop(near)
			early := deadlines.WithTimeout(t.Context(), 24*time.Hour) // ends before it is due
			early.Done()
			opcontext.Stop(early)
		}
		if grown := int64(objects()) - int64(before); grown > operations/2 {
			t.Errorf("after %d operations there are %d objects more", operations, grown)
		}
		testenv.Equal(t, far.Err(), nil, "the far limit's error")
	})
}

// connected tells an operation that its connection was made.
func connected(ctx context.Context) { opcontext.Connected(ctx, true) }

var errBroken = errors.New("broken")

func TestClassified(t *testing.T) {
	t.Parallel()
	for _, class := range []error{
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid, limiter.ErrCanceled,
	} {
		testenv.Equal(t, opcontext.Classified(class) && opcontext.Classified(fmt.Errorf("x: %w: %w", class, errBroken)), true, class, "is one")
	}
	for _, other := range []error{nil, errBroken, context.Canceled, errors.ErrUnsupported} {
		testenv.Equal(t, opcontext.Classified(other), false, other, "is one")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
