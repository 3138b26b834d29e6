package limiter_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oncePerSecond is a bucket of 1: turns come a second apart.
var oncePerSecond = limiter.PerSecond(1)

// elapsed runs f and checks how long it took on the bubble's clock.
func elapsed(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if got := time.Since(began); got != want {
		t.Errorf("it took %v, want %v", got, want)
	}
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

func TestWaitSleepsUntilItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memory.New(), oncePerSecond)
		for _, want := range []time.Duration{0, time.Second, time.Second} {
			elapsed(t, want, func() {
				if err := l.Wait(t.Context(), "k"); err != nil {
					t.Errorf("Wait: %v", err)
				}
			})
		}
		<-time.After(400 * time.Millisecond)
		elapsed(t, 600*time.Millisecond, func() { _ = l.Wait(t.Context(), "k") })

		w := newLimiter(t, memory.New(), limiter.FixedWindow{Limit: 2, Window: 10 * time.Second})
		<-time.After(time.Until(time.Now().Truncate(10 * time.Second).Add(13 * time.Second)))
		for _, want := range []time.Duration{0, 0, 7 * time.Second, 0, 10 * time.Second} {
			elapsed(t, want, func() {
				if err := w.Wait(t.Context(), "k"); err != nil {
					t.Errorf("Wait: %v", err)
				}
			})
		}
	})
}

func TestWaitNOf0DoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memory.New(), oncePerSecond)
		_ = l.Wait(t.Context(), "k")
		elapsed(t, 0, func() {
			if err := l.WaitN(t.Context(), "k", 0); err != nil {
				t.Errorf("WaitN(0): %v", err)
			}
		})
		nextTurn(t, l, time.Second)
	})
}

func TestWaitLetsWaitersGoInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters = 20
		l := newLimiter(t, memory.New(), oncePerSecond)
		began := time.Now()
		went := make(chan int, waiters)
		for i := range waiters {
			go func() {
				if err := l.Wait(context.Background(), "k"); err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				if got := time.Since(began); got != time.Duration(i)*time.Second {
					t.Errorf("waiter %d went after %v, want %ds", i, got, i)
				}
				went <- i
			}()
			synctest.Wait() // it has booked, and sleeps
			<-time.After(time.Millisecond)
		}
		var order []int
		for range waiters {
			order = append(order, <-went)
		}
		if !slices.IsSorted(order) {
			t.Errorf("waiters went in the order %v", order)
		}
	})
}

func TestWaitSaysAtOnceThatTheDeadlineComesBeforeTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memory.New(), oncePerSecond)
		nextTurn(t, l, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		elapsed(t, 0, func() {
			err := l.Wait(ctx, "k")
			if !errors.Is(err, limiter.ErrExceedsMaxWait) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Wait: %v, want ErrExceedsMaxWait and context.DeadlineExceeded", err)
			}
		})
		nextTurn(t, l, time.Second) // nothing was booked

		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		elapsed(t, 2*time.Second, func() {
			if err := l.Wait(ctx, "k"); err != nil {
				t.Errorf("Wait with time enough: %v", err)
			}
		})
	})
}

func TestWaitWithADeadlineThatHasPassedBooksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memory.New(), oncePerSecond)
		ctx, cancel := context.WithTimeout(t.Context(), -1)
		defer cancel()
		if err := l.Wait(ctx, "k"); !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v, want ErrCanceled and context.DeadlineExceeded", err)
		}
		nextTurn(t, l, 0)
	})
}

func TestWaitGivesItsTurnBackIfTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memory.New(), oncePerSecond)
		nextTurn(t, l, 0)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		elapsed(t, 300*time.Millisecond, func() {
			if err := l.Wait(ctx, "k"); !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) {
				t.Errorf("Wait: %v, want ErrCanceled and context.Canceled", err)
			}
		})
		nextTurn(t, l, 700*time.Millisecond)
	})
}

func TestWaitKeepsItsTurnBookedIfOthersWaitBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memory.New(), oncePerSecond)
		nextTurn(t, l, 0)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- l.Wait(ctx, "k") }()
		synctest.Wait()
		nextTurn(t, l, 2*time.Second)
		cancel()
		if err := <-left; !errors.Is(err, limiter.ErrCanceled) {
			t.Errorf("Wait: %v, want ErrCanceled", err)
		}
		nextTurn(t, l, 3*time.Second)
	})
}

func TestWaitIsBoundedByWithMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		l := newLimiter(t, store, oncePerSecond, limiter.WithMaxWait(1500*time.Millisecond))
		nextTurn(t, l, 0)
		elapsed(t, time.Second, func() {
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Errorf("Wait of 1s: %v", err)
			}
		})
		nextTurn(t, l, time.Second)
		elapsed(t, 0, func() {
			err := l.Wait(t.Context(), "k")
			if !errors.Is(err, limiter.ErrExceedsMaxWait) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Wait of 2s: %v, want ErrExceedsMaxWait only", err)
			}
		})
		never := newLimiter(t, store, oncePerSecond, limiter.WithMaxWait(0))
		elapsed(t, 0, func() {
			if err := never.Wait(t.Context(), "k"); !errors.Is(err, limiter.ErrExceedsMaxWait) {
				t.Errorf("Wait of at most 0: %v, want ErrExceedsMaxWait", err)
			}
			if err := never.Wait(t.Context(), "other"); err != nil {
				t.Errorf("Wait of 0: %v", err)
			}
		})
		nextTurn(t, l, 2*time.Second) // none of the refused was booked
	})
}

// cancelSpy fails to cancel, and remembers the context that it was given.
type cancelSpy struct {
	limiter.Store
	err     error
	cancels int
	ctxErr  error
	timeout time.Duration
}

func (s *cancelSpy) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.Kind != limiter.OpCancel {
		return s.Store.Do(ctx, op)
	}
	s.cancels++
	s.ctxErr = ctx.Err()
	if deadline, ok := ctx.Deadline(); ok {
		s.timeout = time.Until(deadline)
	}
	return limiter.State{}, s.err
}

func TestWaitThatIsCanceledSaysSoEvenIfTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		store := &cancelSpy{Store: memory.New(), err: down}
		l := newLimiter(t, store, oncePerSecond)
		nextTurn(t, l, 0)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := l.Wait(ctx, "k"); !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, down) {
			t.Errorf("Wait: %v, want ErrCanceled only", err)
		}
		if store.cancels != 1 || store.ctxErr != nil || store.timeout <= 0 || store.timeout > time.Second {
			t.Errorf("%d cancels, context %v with %v to go, want one that lives for up to 1s",
				store.cancels, store.ctxErr, store.timeout)
		}
	})
}

func TestReservationCancelIsSentOnceWhateverItsOutcome(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	store := &cancelSpy{Store: memory.New(), err: down}
	l := newLimiter(t, store, oncePerSecond)
	nextTurn(t, l, 0)
	r, err := l.Reserve(t.Context(), "k", 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(t.Context()); !errors.Is(err, down) {
		t.Errorf("Cancel: %v, want the store's error", err)
	}
	if err := r.Cancel(t.Context()); err != nil || store.cancels != 1 {
		t.Errorf("the second Cancel: %v, %d sent, want 1: twice may give back too much", err, store.cancels)
	}
}

func TestReserveOf0BooksNothing(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, memory.New(), limiter.PerDay(1))
	mustAllow(t, l, true)
	r, err := l.Reserve(t.Context(), "k", 0, 0)
	if err != nil || !r.Allowed || r.Delay != 0 || r.RetryAfter != 0 {
		t.Errorf("Reserve(0) on a drained key = %+v, Delay %v, %v, want it allowed", r.Result, r.Delay, err)
	}
	if err := l.WaitN(t.Context(), "k", 0); err != nil {
		t.Errorf("WaitN(0) on a drained key: %v", err)
	}
	if err := l.Block(t.Context(), "blocked", 2*time.Hour); err != nil {
		t.Error(err)
	}
	if err := l.WaitN(t.Context(), "blocked", 0); !errors.Is(err, limiter.ErrExceedsMaxWait) {
		t.Errorf("WaitN(0) on a blocked key: %v, want ErrExceedsMaxWait", err)
	}
	if err := r.Cancel(t.Context()); err != nil {
		t.Errorf("Cancel: %v", err)
	}
	refused, err := l.Reserve(t.Context(), "k", 1, time.Second)
	if err != nil || refused.Allowed || refused.Delay != math.MaxInt64 {
		t.Errorf("Reserve(1) = %+v, Delay %v, %v, want it refused", refused.Result, refused.Delay, err)
	}
	mustAllow(t, l, false)
}

func TestWaitAfterASmallStepBackSleepsUntilItsWindowByItsOwnClock(t *testing.T) {
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
			elapsed(t, 0, func() {
				if err := l.WaitN(ctx, "k", 100); !errors.Is(err, limiter.ErrExceedsMaxWait) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v back: WaitN with a deadline before the turn: %v, want ErrExceedsMaxWait", back, err)
				}
			})
			elapsed(t, left, func() {
				if err := l.WaitN(t.Context(), "k", 100); err != nil {
					t.Errorf("%v back: WaitN: %v", back, err)
				}
			})
		})
	}
}
