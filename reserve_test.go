package limiter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

// oncePerSecond is a bucket of 1: turns come a second apart.
var oncePerSecond = limiter.PerSecond(1)

// elapsed runs f and checks how long it took on the bubble's clock.
func elapsed(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	testenv.Equal(t, time.Since(began), want, "it took")
}

// nextTurn books the next turn and checks when it comes.
func nextTurn(t *testing.T, l *limiter.Limiter, want time.Duration) *limiter.Reservation {
	t.Helper()
	r, err := l.Reserve(context.Background(), "k", 1, limiter.MaxReserve)
	if err != nil || !r.Allowed || r.Delay != want {
		t.Errorf("the next turn: %+v, Delay %v, %v, want Delay %v", r.Result, r.Delay, err, want)
	}
	return r
}

// inBubble runs f as a subtest, in a bubble of its own, with a Limiter of one request a second.
func inBubble(t *testing.T, name string, f func(t *testing.T, l *limiter.Limiter)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { f(t, newLimiter(t, memory.New(), oncePerSecond)) })
	})
}

// waits checks that WaitN takes so long, and that its error matches each of errs.
func waits(ctx context.Context, t *testing.T, l *limiter.Limiter, n int64, want time.Duration, errs ...error) {
	t.Helper()
	elapsed(t, want, func() {
		err := l.WaitN(ctx, "k", n)
		for _, class := range errs {
			testenv.ErrorIs(t, err, class, "WaitN", n)
		}
		testenv.Equal(t, err != nil, len(errs) > 0, "WaitN", n, err, "is an error")
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	inBubble(t, "sleeps until its turn", func(t *testing.T, l *limiter.Limiter) {
		for _, want := range []time.Duration{0, time.Second, time.Second} {
			waits(t.Context(), t, l, 1, want)
		}
		<-time.After(400 * time.Millisecond)
		waits(t.Context(), t, l, 1, 600*time.Millisecond)
		waits(t.Context(), t, l, 0, 0) // and books nothing
		nextTurn(t, l, time.Second)

		w := newLimiter(t, memory.New(), limiter.FixedWindow{Limit: 2, Window: 10 * time.Second})
		<-time.After(time.Until(time.Now().Truncate(10 * time.Second).Add(13 * time.Second)))
		for _, want := range []time.Duration{0, 0, 7 * time.Second, 0, 10 * time.Second} {
			waits(t.Context(), t, w, 1, want)
		}
	})
	inBubble(t, "fails at once if the deadline comes before the turn", func(t *testing.T, _ *limiter.Limiter) {
		store := &spyStore{Store: memory.New()}
		l := newLimiter(t, store, oncePerSecond)
		nextTurn(t, l, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		waits(ctx, t, l, 1, 0, limiter.ErrExceedsMaxWait, context.DeadlineExceeded)
		testenv.Equal(t, store.calls, 2, "operations: the wait books nothing, and cancels nothing")
		nextTurn(t, l, time.Second) // nothing was booked
		ctx, cancel = context.WithTimeout(t.Context(), 2*limiter.MaxReserve)
		defer cancel()
		waits(ctx, t, l, 1, 2*time.Second)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		elapsed(t, time.Second, func() { _ = l.Wait(ctx, "k") }) // a turn exactly at the deadline is awaited
	})
	inBubble(t, "gives its turn back if the context ends", func(t *testing.T, l *limiter.Limiter) {
		nextTurn(t, l, 0)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		waits(ctx, t, l, 1, 300*time.Millisecond, limiter.ErrCanceled, context.Canceled)
		nextTurn(t, l, 700*time.Millisecond)
	})
	inBubble(t, "keeps its turn if others wait behind it", func(t *testing.T, l *limiter.Limiter) {
		nextTurn(t, l, 0)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- l.Wait(ctx, "k") }()
		synctest.Wait()
		nextTurn(t, l, 2*time.Second)
		cancel()
		testenv.ErrorIs(t, <-left, limiter.ErrCanceled, "Wait")
		nextTurn(t, l, 3*time.Second)
	})
	inBubble(t, "does not exceed WithMaxWait", func(t *testing.T, _ *limiter.Limiter) {
		store := memory.New()
		l := newLimiter(t, store, oncePerSecond, limiter.WithMaxWait(1500*time.Millisecond))
		nextTurn(t, l, 0)
		waits(t.Context(), t, l, 1, time.Second)
		nextTurn(t, l, time.Second)
		waits(t.Context(), t, l, 1, 0, limiter.ErrExceedsMaxWait)
		if err := l.Wait(t.Context(), "k"); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "comes in 2s") {
			t.Errorf("Wait without a deadline: %v, want ErrExceedsMaxWait only, and when the turn comes", err)
		}
		never := newLimiter(t, store, oncePerSecond, limiter.WithMaxWait(0))
		waits(t.Context(), t, never, 1, 0, limiter.ErrExceedsMaxWait)
		must(t, never.Wait(t.Context(), "other"))
		nextTurn(t, l, 2*time.Second) // the refused calls booked nothing
	})
	inBubble(t, "tells of the cancellation even if the store fails to cancel", func(t *testing.T, _ *limiter.Limiter) {
		store := &spyStore{Store: memory.New(), err: errDown, only: limiter.OpCancel}
		l := newLimiter(t, store, oncePerSecond)
		nextTurn(t, l, 0)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := l.Wait(ctx, "k"); !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, errDown) {
			t.Errorf("Wait: %v, want ErrCanceled only", err)
		}
		if store.calls != 3 || store.ended || store.left <= 0 || store.left > time.Second {
			t.Errorf("%d operations; of the last, the context had ended: %v, with %v left; want two bookings, and a cancel for up to 1s", store.calls, store.ended, store.left)
		}
	})
	inBubble(t, "cancels once", func(t *testing.T, _ *limiter.Limiter) {
		store := &spyStore{Store: memory.New(), err: errDown, only: limiter.OpCancel}
		r := nextTurn(t, newLimiter(t, store, oncePerSecond), 0)
		testenv.ErrorIs(t, r.Cancel(t.Context()), errDown, "Cancel")
		if err := r.Cancel(t.Context()); err != nil || store.calls != 2 {
			t.Errorf("the second Cancel: %v, %d operations, want 2: two cancels may give back too much", err, store.calls)
		}
	})
	inBubble(t, "waits for a turn of the fallback", func(t *testing.T, _ *limiter.Limiter) {
		l := newLimiter(t, &spyStore{err: limiter.ErrNotApplied}, limiter.PerHour(1), limiter.FailLocal(memory.New()))
		waits(t.Context(), t, l, 1, 0)
		waits(t.Context(), t, l, 1, time.Hour)
	})
}

func TestWaitAfterSmallStepBack(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{490 * time.Millisecond, 1900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var offset time.Duration
			store := memory.New(memory.WithClock(func() time.Time { return time.Now().Add(offset) }))
			l := newLimiter(t, store, limiter.FixedWindow{Limit: 100, Window: time.Second})
			<-time.After(10*time.Second + 500*time.Millisecond) // a bubble begins at midnight
			if r, err := l.AllowN(t.Context(), "k", 100); err != nil || !r.Allowed {
				t.Fatalf("AllowN = %+v, %v", r, err)
			}
			offset = -back
			left := 500*time.Millisecond + back
			ctx, cancel := context.WithTimeout(t.Context(), left-1)
			defer cancel()
			waits(ctx, t, l, 100, 0, limiter.ErrExceedsMaxWait, context.DeadlineExceeded)
			waits(t.Context(), t, l, 100, left)
		})
	}
}

// The time that the store takes is missing for the wait.
func TestWaitOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		slow := storeFunc(func(ctx context.Context, op limiter.Op) (limiter.State, error) {
			<-time.After(200 * time.Millisecond)
			return store.Do(ctx, op)
		})
		l := newLimiter(t, slow, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 1200 * time.Millisecond})
		mustAllow(t, newLimiter(t, store, l.Policy()), true)
		ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
		defer cancel()
		err := l.Wait(ctx, "k")
		testenv.ErrorIs(t, ctx.Err(), nil, "the deadline after Wait")
		testenv.ErrorIs(t, err, limiter.ErrExceedsMaxWait, "Wait")
		testenv.ErrorIs(t, err, context.DeadlineExceeded, "Wait")
		<-time.After(time.Second)
		mustAllow(t, l, true) // the booking was canceled
	})
}
