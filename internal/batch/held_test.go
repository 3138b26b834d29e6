package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

// A Hold has a slot of the line of single keys, whatever line its key waited in before.
func TestHoldSlot(t *testing.T) {
	op := take("k", 1)
	booksAhead := func(key string) limiter.Op {
		op := booking(key)
		op.Timeout = 60 * ms
		return op
	}
	for name, c := range map[string]struct {
		dial  time.Duration
		first []limiter.Op // stay
		left  limiter.Op   // of a caller who leaves before the Hold has its key
	}{
		"after the calls before it have left the shared line": {0, takes("x"), op},
		"from a leader that waits for a connection":           {30 * ms, nil, booksAhead("k")},
	} {
		apart(t, name, 4, 8, func(t *testing.T, s *sender, q *queue) {
			s.dial = c.dial
			ask(t.Context(), q, c.first...)
			ctx, leave := context.WithCancel(t.Context())
			left := ask(ctx, q, c.left)
			h := hold(t.Context(), q, op)
			leave()
			left.want(t, "canceled")
			h.release(t)
		})
	}
	apart(t, "from a leader, without a connection of its own", 4, 8, func(t *testing.T, s *sender, q *queue) {
		s.dial = 30 * ms
		ask(t.Context(), q, booksAhead("x"))
		began, h := time.Now(), hold(t.Context(), q, op)
		h.want(t, "")
		testenv.Equal(t, time.Since(began), s.dial+s.takes)
		h.End(true, nil)
	})
	apart(t, "of a key that it makes hot", 4, 2, func(t *testing.T, _ *sender, q *queue) {
		ask(t.Context(), q, takes("x k")...)
		h := hold(t.Context(), q, op)
		h.release(t)
		testenv.Equal(t, h.Waited(), true, "the Hold waited for the take before it")
	})
	for answered, want := range map[bool]string{false: "2 unknown", true: "2 took"} {
		name := fmt.Sprint("whose next call gets its full time again if the store answered: ", answered)
		apart(t, name, 4, 8, func(t *testing.T, s *sender, q *queue) {
			h := hold(t.Context(), q, op)
			behind := ask(t.Context(), q, op, booking("x")) // for the key, and for the slot
			s.takes = 150 * ms
			<-time.After(s.takes)
			h.End(answered, nil)
			behind.want(t, want)
		})
	}
	slowly(t, "of a key that another call has made slow", func(t *testing.T, _ *sender, q *queue) {
		ask(t.Context(), q, booking("a"), booking("b")) // fill the line of single keys
		h := hold(t.Context(), q, op)
		locked := lock(t, q, op)
		h.release(t)
		testenv.Must(t, <-locked)
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
		var held sync.Map
		var failed atomic.Int64
		s.before = func(_ context.Context, groups []*batch.Group) error {
			for _, g := range groups {
				if _, is := held.Load(g.Op().Key); is {
					t.Errorf("seed %d: a statement has a key that is held", seed)
				}
			}
			if len(groups) > 2 {
				failed.Add(1)
				return limiter.ErrNotApplied
			}
			return nil
		}
		several := func(ctx context.Context, ops []limiter.Op, last time.Duration) {
			before := failed.Load()
			queues := slices.Repeat([]*batch.Queue{q.Queue}, len(ops))
			h, err := batch.HoldAll(limited(ctx, t, timeout), queues, ops, true)
			defer func() { h.End(err == nil, err) }()
			if err != nil {
				busy := errors.Is(err, limiter.ErrKeyBusy) || h.Waited() || failed.Load() > before
				if ctx.Err() == nil && (!busy || !errors.Is(err, limiter.ErrNotApplied)) {
					t.Errorf("seed %d: %v", seed, err)
				}
				return
			}
			for _, op := range ops {
				if _, is := held.LoadOrStore(op.Key, true); is {
					t.Errorf("seed %d: two hold a key", seed)
				}
			}
			<-time.After(last)
			for _, op := range ops {
				held.Delete(op.Key)
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
				ops := takes(strings.Trim(fmt.Sprint(keys), "[]"))
				all.Go(func() { several(ctx, ops, pause) })
			} else {
				op := within(time.Minute, fmt.Sprint(keys[0]))
				op.Cost = 1 + r.Int64N(2)
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
	})
}
