package opcontext_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// call is a call that a test makes at a time after its beginning.
type call struct {
	at time.Duration
	do func(ctx context.Context) // nil: the caller leaves
}

func begins(lockWait time.Duration) func(ctx context.Context) {
	return func(ctx context.Context) { _ = opcontext.Begin(ctx, false, lockWait, 250*ms) }
}

func TestCallsThatMoveTheEnd(t *testing.T) {
	t.Parallel()
	early := func(ctx context.Context) { opcontext.Connected(ctx, false) }
	fresh := func(ctx context.Context) { _ = opcontext.Begin(ctx, true, 0, 0) }
	renew := func(ctx context.Context) { opcontext.Renew(ctx) }
	near := context.DeadlineExceeded
	unsent := func(ctx context.Context) { opcontext.RenewUnsent(ctx) }
	for name, c := range map[string]struct {
		timeout, deadline time.Duration
		dialing           bool
		calls             []call
		want              time.Duration
		by                error // why the caller ended it; nil: the time limit did
	}{
		"a connection that was there":                      {timeout: 250 * ms, calls: []call{{100 * ms, early}}, want: 250 * ms},
		"a statement on a connection that was made before": {timeout: 250 * ms, calls: []call{{100 * ms, connected}, {200 * ms, fresh}}, want: 350 * ms},
		"connected twice":                                  {timeout: 250 * ms, calls: []call{{100 * ms, connected}, {200 * ms, connected}}, want: 350 * ms},
		"unsent, and a connection is being made": {
			timeout: 250 * ms, dialing: true, calls: []call{{200 * ms, unsent}}, want: 3200 * ms, // renewed until 450 ms, and then DialTimeout less the time limit
		},
		"unsent, with a connection":                            {timeout: 250 * ms, dialing: true, calls: []call{{100 * ms, connected}, {200 * ms, unsent}}, want: 450 * ms},
		"renewed after the first statement had its least time": {timeout: 10 * ms, calls: []call{{0, begins(0)}, {ms, renew}}, want: 25 * ms},
		"two statements have the least time once":              {timeout: 10 * ms, calls: []call{{5 * ms, begins(0)}, {25 * ms, begins(0)}}, want: 30 * ms},
		"two statements beyond a near deadline":                {timeout: 10 * ms, deadline: 40 * ms, calls: []call{{5 * ms, begins(0)}, {25 * ms, begins(0)}}, want: 30 * ms},
		"renewed beyond a near deadline":                       {timeout: 30 * ms, deadline: 40 * ms, calls: []call{{5 * ms, begins(0)}, {6 * ms, renew}}, want: 36 * ms, by: near},
		"the caller leaves during a statement":                 {timeout: 250 * ms, calls: []call{{20 * ms, begins(0)}, {50 * ms, nil}}, want: 150 * ms, by: context.Canceled},
		"the caller leaves shortly before the end":             {timeout: 250 * ms, calls: []call{{20 * ms, begins(0)}, {200 * ms, nil}}, want: 250 * ms, by: context.Canceled},
		"the caller leaves before a near deadline":             {timeout: time.Second, deadline: 40 * ms, calls: []call{{5 * ms, begins(0)}, {10 * ms, nil}}, want: 65 * ms, by: context.Canceled},
		"sent 1 ms before the deadline":                        {timeout: time.Second, deadline: ms, calls: []call{{0, begins(0)}}, want: 26 * ms, by: near},
		"a near deadline":                                      {timeout: time.Second, deadline: 40 * ms, calls: []call{{19 * ms, begins(0)}}, want: 65 * ms, by: near},
		"the last near deadline":                               {timeout: time.Second, deadline: 50*ms - 1, calls: []call{{0, begins(0)}}, want: 75*ms - 1, by: near},
		"the first deadline that is not near":                  {timeout: time.Second, deadline: 50 * ms, calls: []call{{0, begins(0)}}, want: 25 * ms, by: near},
		"a deadline within the time limit":                     {timeout: time.Second, deadline: 400 * ms, calls: []call{{100 * ms, begins(0)}}, want: 300 * ms, by: near},
		"sent 10 ms before the end that a deadline sets":       {timeout: time.Second, deadline: 400 * ms, calls: []call{{290 * ms, begins(0)}}, want: 340 * ms, by: near},
		"sent 10 ms before the end that a near one sets":       {timeout: time.Second, deadline: 120 * ms, calls: []call{{50 * ms, begins(0)}}, want: 80 * ms, by: near},
		"sent 5 ms before the end that the nearest sets":       {timeout: time.Second, deadline: 60 * ms, calls: []call{{25 * ms, begins(0)}}, want: 50 * ms, by: near},
		"a time limit within a near deadline":                  {timeout: 10 * ms, deadline: 40 * ms, calls: []call{{5 * ms, begins(0)}}, want: 30 * ms},
		"a time limit beyond half of a deadline":               {timeout: 30 * ms, deadline: 40 * ms, calls: []call{{5 * ms, begins(0)}}, want: 35 * ms, by: near},
		"the shortest time limit":                              {timeout: ms, deadline: time.Second, calls: []call{{0, begins(0)}}, want: 25 * ms},
		"sent early in a short time limit":                     {timeout: 25 * ms, deadline: time.Second, calls: []call{{ms, begins(0)}}, want: 26 * ms},
		"sent 10 ms before the end":                            {timeout: 250 * ms, deadline: time.Second, calls: []call{{240 * ms, begins(0)}}, want: 265 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, leave := context.WithCancel(within(t, c.deadline))
				defer leave()
				began := time.Now()
				ctx := (&opcontext.Deadlines{Dialing: func() bool { return c.dialing }}).WithTimeout(parent, c.timeout)
				defer opcontext.Stop(ctx)
				for _, next := range c.calls {
					<-time.After(time.Until(began.Add(next.at)))
					if next.do == nil {
						leave()
					} else {
						next.do(ctx)
					}
				}
				ended := make(chan bool)
				context.AfterFunc(ctx, func() { close(ended) }) // nothing else waits for ctx
				<-ended
				testenv.Equal(t, time.Since(began), c.want, "the time until its end")
				testenv.ErrorIs(t, opcontext.EndedByCaller(ctx), c.by, "its end")
				err := opcontext.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
				names := strings.Contains(err.Error(), "the time limit of "+c.timeout.String())
				if errors.Is(err, limiter.ErrCanceled) != (c.by != nil) || !errors.Is(err, limiter.ErrOutcomeUnknown) || names != errors.Is(c.by, near) ||
					errors.Is(err, context.DeadlineExceeded) == errors.Is(c.by, context.Canceled) {
					t.Errorf("the error is %v", err)
				}
				testenv.Equal(t, opcontext.Renew(ctx), false, "it was renewed after its end")
				if err := opcontext.Begin(ctx, false, 0, 0); err == nil || errors.Is(err, limiter.ErrOutcomeUnknown) {
					t.Errorf("a statement after its end: %v", err)
				}
			})
		})
	}
}

func TestLockWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls                []call
		want, longest, queue time.Duration
	}{
		"two fifths of the time":       {[]call{{0, begins(0)}}, 200 * ms, 200 * ms, 0},
		"of the time that is left":     {[]call{{0, begins(0)}, {250 * ms, begins(0)}}, 100 * ms, 100 * ms, 0},
		"what Begin was told":          {[]call{{0, begins(50 * ms)}}, 50 * ms, 200 * ms, 250 * ms},
		"a nanosecond":                 {[]call{{0, begins(1)}}, 1, 200 * ms, 250 * ms},
		"less than Begin was told":     {[]call{{0, begins(150 * ms)}, {250 * ms, func(context.Context) {}}}, 100 * ms, 100 * ms, 0},
		"of the time in a queue":       {[]call{{0, begins(50 * ms)}, {200 * ms, func(context.Context) {}}}, 50 * ms, 120 * ms, 140 * ms},
		"what the last Begin was told": {[]call{{0, begins(50 * ms)}, {250 * ms, begins(0)}}, 100 * ms, 100 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx := new(opcontext.Deadlines).WithTimeout(t.Context(), 500*ms)
				defer opcontext.Stop(ctx)
				for _, next := range c.calls {
					<-time.After(time.Until(began.Add(next.at)))
					next.do(ctx)
				}
				got, queue, ok := opcontext.LockWait(ctx)
				if longest := opcontext.LongestLockWait(ctx); got != c.want || queue != c.queue || longest != c.longest || !ok {
					t.Errorf("%v after %v in a queue, at the most %v, want %v, %v and %v", got, queue, longest, c.want, c.queue, c.longest)
				}
			})
		})
	}
}

func TestContextWithoutATimeLimit(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	if d, queue, ok := opcontext.LockWait(ctx); d != 0 || queue != 0 || ok || opcontext.LongestLockWait(ctx) != 0 {
		t.Error("it has a longest wait for a lock")
	}
	if err := opcontext.Begin(ctx, true, 0, 0); err != nil || !opcontext.Renew(ctx) || opcontext.CallerErr(ctx) != nil {
		t.Errorf("its operation cannot begin: %v", err)
	}
	leave()
	if err := opcontext.Begin(ctx, true, 0, 0); !errors.Is(err, limiter.ErrCanceled) || opcontext.Renew(ctx) || opcontext.CallerErr(ctx) == nil {
		t.Errorf("the operation of a caller who has left: %v, want ErrCanceled", err)
	}
	testenv.ErrorIs(t, opcontext.Interrupted(ctx, limiter.ErrNotApplied, errBroken), errBroken)
}

func TestSecondStatementOfACallerWhoHasLeft(t *testing.T) {
	t.Parallel()
	caller, leave := context.WithCancel(context.WithValue(t.Context(), ms, "a value"))
	ctx := new(opcontext.Deadlines).WithTimeout(caller, time.Hour)
	defer opcontext.Stop(ctx)
	testenv.Equal(t, ctx.Value(ms), "a value", "the caller's value")
	testenv.Must(t, opcontext.Begin(ctx, false, 0, 0))
	child, end := context.WithCancel(ctx)
	if end(); opcontext.EndedByCaller(child) == nil || opcontext.CallerErr(ctx) != nil {
		t.Errorf("a part of it ended by %v, and the caller's context by %v", opcontext.EndedByCaller(child), opcontext.CallerErr(ctx))
	}
	testenv.Equal(t, opcontext.Renew(ctx), true, "it was renewed")
	leave()
	if err := opcontext.Begin(ctx, false, 0, 0); !errors.Is(err, limiter.ErrCanceled) || opcontext.CallerErr(ctx) == nil {
		t.Errorf("it may begin: %v, want ErrCanceled", err)
	}
}

func TestLockTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout, deadline time.Duration
		class             error
	}{
		"no time limit":                    {0, time.Second, limiter.ErrNotApplied},
		"a deadline after the time limit":  {250 * ms, time.Second, limiter.ErrNotApplied},
		"a deadline within the time limit": {250 * ms, 300 * ms, limiter.ErrCanceled},
	} {
		ctx := new(opcontext.Deadlines).WithTimeout(within(t, c.deadline), c.timeout)
		defer opcontext.Stop(ctx)
		err := opcontext.LockTimeout(ctx, errBroken)
		if !errors.Is(err, c.class) || !errors.Is(err, errBroken) || !errors.Is(err, context.DeadlineExceeded) ||
			(opcontext.ShortDeadline(ctx) != nil) != (c.class == limiter.ErrCanceled) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
	}
}

// context.AfterFunc and context.WithCancel call the method AfterFunc.
func TestAfterFunc(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := new(opcontext.Deadlines).WithTimeout(t.Context(), ms).(*opcontext.Context)
		defer opcontext.Stop(ctx)
		called := make([]bool, 4)
		after := func(i int) (stop func() bool) { return ctx.AfterFunc(func() { called[i] = true }) }
		after(0)
		stop := after(1)
		after(2)
		testenv.Equal(t, stop() && !stop(), true, "stop, before the end, returns true, and then false")
		<-time.After(2 * ms)
		testenv.Equal(t, after(3)(), false, "stop, after the end")
		synctest.Wait()
		testenv.Equal(t, called, []bool{true, false, true, true})
	})
}
