package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// hold waits for a key in a goroutine of its own.
func hold(ctx context.Context, q *queue, op limiter.Op) (wait func() (waited bool, err error)) {
	var waited bool
	var err error
	var all sync.WaitGroup
	all.Go(func() { waited, err = q.Hold(ctx, &op) })
	synctest.Wait()
	return func() (bool, error) {
		all.Wait()
		return waited, err
	}
}

// held fails the test unless the Hold gets its key. It reports whether the store answered others meanwhile.
func held(t *testing.T, wait func() (bool, error)) (waited bool) {
	t.Helper()
	waited, err := wait()
	if err != nil {
		t.Fatalf("Hold: %v, want the key", err)
	}
	return waited
}

func TestHold(t *testing.T) {
	op := take("k", 1)
	sub(t, "keeps the takes of its key waiting, which then go together", func(t *testing.T, s *sender, q *queue) {
		if held(t, hold(t.Context(), q, op)) {
			t.Error("a Hold of an idle key waited")
		}
		answers := ask(t.Context(), q, op, op, op)
		took(t, ask(t.Context(), q, take("other", 1))())
		if sent := s.statements(); len(sent) != 1 || sent[0].keys[0] != "other" {
			t.Errorf("sent %+v while the key is held, want the other key only", sent)
		}
		q.Release(&op, true)
		if n := took(t, answers()); n != 3 {
			t.Errorf("%d took, want 3", n)
		}
		if sent := s.statements(); len(sent) != 2 || sent[1].units["k"] != 3 {
			t.Errorf("sent %+v, want 3 takes together", sent)
		}
	})
	sub(t, "gets its key in the order of arrival", func(t *testing.T, s *sender, q *queue) {
		first := ask(t.Context(), q, op)
		before := ask(t.Context(), q, op, op)
		holds := hold(t.Context(), q, op)
		after := ask(t.Context(), q, op, op)
		next := hold(t.Context(), q, op)
		if !held(t, holds) {
			t.Error("the Hold did not wait for the takes before it")
		}
		if n := took(t, first()) + took(t, before()); n != 3 {
			t.Errorf("%d took before the Hold, want 3", n)
		}
		<-time.After(3 * s.takes)
		if sent := s.statements(); len(sent) != 2 || sent[1].units["k"] != 2 {
			t.Errorf("sent %+v before the key is released, want one take and then two", sent)
		}
		q.Release(&op, true)
		if n := took(t, after()); n != 2 {
			t.Errorf("%d took after the Hold, want 2", n)
		}
		held(t, next)
		q.Release(&op, false)
	})
	// A statement for several keys charges as many units of one operation for each.
	t.Run("does not make unequal takes units of one operation", func(t *testing.T) {
		apart(t, 4, 8, func(t *testing.T, s *sender, q *queue) {
			two, three := take("k", 2), take("k", 3)
			held(t, hold(t.Context(), q, op))
			holdTwo := hold(t.Context(), q, two)
			holdThree := hold(t.Context(), q, three)
			answers := []func() []answer{ask(t.Context(), q, two)}
			q.Release(&op, true)
			held(t, holdTwo)
			answers = append(answers, ask(t.Context(), q, three))
			q.Release(&two, true)
			held(t, holdThree)
			answers = append(answers, ask(t.Context(), q, take("a", 1), take("b", 1), take("c", 1))) // c shares a statement with k
			q.Release(&three, true)
			for _, wait := range answers {
				took(t, wait())
			}
			if used := s.rows["k"].FullAt - s.rows["k"].At; used != 5*int64(perHour.Step()) {
				t.Errorf("the takes of 2 and 3 were charged as %v, want 5", float64(used)/float64(perHour.Step()))
			}
		})
	})
	sub(t, "is skipped if its caller leaves", func(t *testing.T, _ *sender, q *queue) {
		held(t, hold(t.Context(), q, op))
		ctx, cancel := context.WithCancel(t.Context())
		leaves := hold(ctx, q, op)
		timesOut := hold(t.Context(), q, op)
		long := op
		long.Timeout = time.Minute
		stays, answers := hold(t.Context(), q, long), ask(t.Context(), q, long)
		cancel()
		if _, err := leaves(); !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, limiter.ErrKeyBusy) {
			t.Errorf("a caller who leaves: %v, want ErrCanceled", err)
		}
		if _, err := timesOut(); !errors.Is(err, limiter.ErrKeyBusy) || !errors.Is(err, limiter.ErrNotApplied) {
			t.Errorf("after the time limit: %v, want ErrKeyBusy and ErrNotApplied", err)
		}
		q.Release(&op, false)
		held(t, stays)
		q.Release(&op, true)
		if n := took(t, answers()); n != 1 {
			t.Error("the take behind the Hold was not sent")
		}
	})
	sub(t, "gets its key behind callers who have left", func(t *testing.T, _ *sender, q *queue) {
		busy := ask(t.Context(), q, take("a", 1), take("b", 1)) // as many statements as may be in flight
		ctx, cancel := context.WithCancel(t.Context())
		left := ask(ctx, q, op)
		holds := hold(t.Context(), q, op)
		cancel()
		left()
		held(t, holds)
		took(t, busy())
		behind := ask(t.Context(), q, op)
		q.Release(&op, true)
		if n := took(t, behind()); n != 1 {
			t.Error("the take behind the Hold was not sent")
		}
	})
	// The calls behind a Hold whose time ended have waited for those that it waited for.
	sub(t, "that times out leaves the time of the calls behind it", func(t *testing.T, s *sender, q *queue) {
		s.takes = 3 * timeout / 5
		a, b := take("a", 1), take("b", 1)
		behind := ask(t.Context(), q, b, b) // the second one waits for the first, and then takes as long
		limited := new(opcontext.Deadlines).WithTimeout(t.Context(), timeout)
		defer opcontext.Stop(limited)
		var holds sync.WaitGroup
		holds.Go(func() {
			h, err := batch.HoldAll(limited, []*batch.Queue{q.Queue, q.Queue}, []limiter.Op{a, b}, true)
			if !errors.Is(err, limiter.ErrKeyBusy) {
				t.Errorf("HoldAll = %v, want ErrKeyBusy", err)
			}
			h.End(false, err)
		})
		<-time.After(20 * ms)
		if n := s.counters.Queued.Load(); n != 3 {
			t.Errorf("%d are queued, want 3: the second take, and both operations of the Hold", n)
		}
		if n := took(t, ask(t.Context(), q, a)()); n != 1 { // it has 20 ms left when the Hold ends
			t.Error("the take behind the Hold was not granted")
		}
		holds.Wait()
		took(t, behind())
	})
	sub(t, "gets its full time again only with renew", func(t *testing.T, _ *sender, q *queue) {
		holdAll := func(renew bool) func(context.Context) error {
			return func(ctx context.Context) error {
				h, err := batch.HoldAll(ctx, []*batch.Queue{q.Queue}, []limiter.Op{op}, renew)
				h.End(err == nil, err)
				return err
			}
		}
		lock := func(ctx context.Context) error { return q.Lock(ctx, &op) }
		for i, wait := range []func(context.Context) error{holdAll(true), holdAll(false), lock} {
			first := ask(t.Context(), q, op)
			limited, began := new(opcontext.Deadlines).WithTimeout(t.Context(), timeout), time.Now()
			testenv.Must(t, wait(limited))
			took(t, first())
			<-limited.Done()
			if after := time.Since(began); after > timeout != (i == 0) {
				t.Errorf("wait %d: its time ended after %v", i, after)
			}
		}
		first := ask(t.Context(), q, op)
		dialing := &opcontext.Deadlines{Dialing: func() bool { return true }}
		limited, began := dialing.WithTimeout(t.Context(), timeout), time.Now()
		testenv.Must(t, holdAll(true)(limited))
		took(t, first())
		if <-limited.Done(); time.Since(began) < opcontext.DialTimeout {
			t.Errorf("it waited %v for a connection, want %v", time.Since(began), opcontext.DialTimeout)
		}
	})
}

// A Hold has a slot of the line of single keys, whatever line its key waited in before.
func TestHoldSlot(t *testing.T) {
	op := take("k", 1)
	t.Run("after the calls before it have left the shared line", func(t *testing.T) {
		apart(t, 4, 8, func(t *testing.T, _ *sender, q *queue) {
			first := ask(t.Context(), q, take("x", 1)) // fills the shared line
			ctx, leave := context.WithCancel(t.Context())
			left := ask(ctx, q, op)
			holds := hold(t.Context(), q, op)
			leave()
			left()
			took(t, first())
			held(t, holds)
			q.Release(&op, true)
		})
	})
	slowly(t, "of a key that another call has made slow", func(t *testing.T, q *queue, _ *sender, _ chan struct{}) {
		a, b := take("a", 1), take("b", 1)
		a.MaxWait, b.MaxWait = time.Hour, time.Hour
		first := ask(t.Context(), q, a, b) // fill the line of single keys
		holds := hold(t.Context(), q, op)
		limited := new(opcontext.Deadlines).WithTimeout(t.Context(), timeout)
		defer opcontext.Stop(limited)
		var locked sync.WaitGroup
		locked.Go(func() {
			if err := q.Lock(limited, &op); err != nil {
				t.Error(err)
			}
		})
		took(t, first())
		held(t, holds)
		q.Release(&op, true)
		locked.Wait()
	})
}

// Callers hold several keys, in order, beside takes that share statements, callers who leave and
// statements that fail. A held key is in no statement, and in the end every queue is empty.
//
// If the time of a caller ends, its key is busy or the store answered others while it waited for this
// key or one before. Otherwise a statement has failed meanwhile.
func TestHeldKeysAreInNoStatement(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		held := map[string]bool{}
		failed := 0
		s.before = func(_ context.Context, groups []*batch.Group) error {
			mu.Lock()
			defer mu.Unlock()
			for _, g := range groups {
				if held[g.Op().Key] {
					t.Errorf("seed %d: a statement has a key that is held", seed)
				}
			}
			if len(groups) > 2 {
				failed++
				return limiter.ErrNotApplied
			}
			return nil
		}
		several := func(ctx context.Context, keys []int, last time.Duration) {
			limited := new(opcontext.Deadlines).WithTimeout(ctx, timeout)
			defer opcontext.Stop(limited)
			mu.Lock()
			before := failed
			mu.Unlock()
			ops, queues := make([]limiter.Op, len(keys)), make([]*batch.Queue, len(keys))
			for i, k := range keys {
				ops[i], queues[i] = take(fmt.Sprint(k), 1), q.Queue
			}
			h, err := batch.HoldAll(limited, queues, ops, true)
			defer func() { h.End(err == nil, err) }()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				busy := errors.Is(err, limiter.ErrKeyBusy) || h.Waited() || failed > before
				if ctx.Err() == nil && (!busy || !errors.Is(err, limiter.ErrNotApplied)) {
					t.Errorf("seed %d: %v", seed, err)
				}
				return
			}
			for _, op := range ops {
				if held[op.Key] {
					t.Errorf("seed %d: two hold a key", seed)
				}
				held[op.Key] = true
			}
			mu.Unlock()
			<-time.After(last)
			mu.Lock()
			for _, op := range ops {
				held[op.Key] = false
			}
		}
		var all sync.WaitGroup
		for range 400 {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			keys := r.Perm(6)[:1+r.IntN(4)]
			slices.Sort(keys)
			pause := time.Duration(r.IntN(10)) * ms
			if r.IntN(2) == 0 {
				all.Go(func() { several(ctx, keys, pause) })
			} else {
				op := take(fmt.Sprint(keys[0]), 1+r.Int64N(2))
				op.Timeout = time.Minute
				all.Go(func() {
					if _, err := q.Do(ctx, op); err != nil && ctx.Err() == nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
			if r.IntN(5) == 0 {
				cancel()
			}
			if r.IntN(3) == 0 {
				<-time.After(time.Duration(r.IntN(8)) * ms)
			}
		}
		all.Wait()
		<-time.After(time.Second)
		if n := q.Keys(); n != 0 {
			t.Errorf("seed %d: %d key queues are left", seed, n)
		}
	})
}
