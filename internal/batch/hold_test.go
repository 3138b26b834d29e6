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
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestHold(t *testing.T) {
	op := take("k", 1)
	sub(t, "keeps the takes of its key waiting, which then go together", func(t *testing.T, s *sender, q *queue) {
		h := hold(t.Context(), q, op)
		h.want(t, "")
		answers := ask(t.Context(), q, op, op, op)
		ask(t.Context(), q, take("other", 1)).want(t, "took")
		testenv.Equal(t, h.Waited(), false, "a Hold of an idle key waited")
		s.wantSent(t, "other")
		h.End(nil)
		answers.want(t, "3 took")
		s.wantSent(t, "other, k*3")
	})
	sub(t, "gets its key in the order of arrival", func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, op)
		ask(t.Context(), q, op, op)
		holds := hold(t.Context(), q, op, take("z", 1))
		after := ask(t.Context(), q, op, op)
		next := hold(t.Context(), q, op)
		holds.want(t, "")
		testenv.Equal(t, holds.Waited(), true, "the Hold waited for the takes before it")
		<-time.After(3 * s.takes)
		s.wantSent(t, "k, k*2") // before the key is released
		holds.End(nil)
		after.want(t, "2 took")
		next.release(t)
	})
	// A statement for several keys charges as many units of one operation for each.
	apart(t, "does not make unequal takes units of one operation", 4, 8, func(t *testing.T, s *sender, q *queue) {
		two, three := take("k", 2), take("k", 3)
		first := hold(t.Context(), q, op)
		holdTwo, holdThree := hold(t.Context(), q, two), hold(t.Context(), q, three)
		ask(t.Context(), q, two)
		first.End(nil)
		holdTwo.want(t, "")
		ask(t.Context(), q, three)
		holdTwo.End(nil)
		holdThree.want(t, "")
		last := ask(t.Context(), q, takes("a b c")...) // c shares a statement with k
		holdThree.End(nil)
		last.want(t, "3 took")
		testenv.Equal(t, float64(s.rows["k"].FullAt-s.rows["k"].At)/float64(perHour.Step()), 5, "what the takes of 2 and 3 charged")
	})
	sub(t, "is skipped if its caller leaves", func(t *testing.T, _ *sender, q *queue) {
		first := hold(t.Context(), q, op)
		ctx, cancel := context.WithCancel(t.Context())
		leaves, timesOut := hold(ctx, q, op), hold(t.Context(), q, op)
		long := within(time.Minute, "k")
		stays := hold(t.Context(), q, long)
		ask(t.Context(), q, long)
		cancel()
		leaves.want(t, "canceled")
		timesOut.want(t, "not applied+busy")
		first.End(limiter.ErrNotApplied)
		stays.release(t)
	})
	apart(t, "gets its key behind callers who have left", 4, 8, func(t *testing.T, s *sender, q *queue) {
		ask(t.Context(), q, take("a", 1)) // fills the shared line
		ctx, cancel := context.WithCancel(t.Context())
		left := ask(ctx, q, op)
		h := hold(t.Context(), q, op, take("l", 1))
		cancel()
		left.want(t, "canceled")
		h.want(t, "")
		ask(t.Context(), q, op)
		<-time.After(2 * s.takes)
		s.wantSent(t, "a")
		h.End(nil)
	})
	// The calls behind a Hold whose time ended have waited for those that it waited for.
	sub(t, "that times out leaves the time of the calls behind it", func(t *testing.T, s *sender, q *queue) {
		s.takes = 3 * timeout / 5
		ask(t.Context(), q, takes("b b")...) // the second one waits for the first, and then takes as long
		h := hold(t.Context(), q, takes("a b")...)
		<-time.After(20 * ms)
		testenv.Equal(t, s.counters.Queued.Load(), 3, "the second take, and both operations of the Hold")
		ask(t.Context(), q, take("a", 1)).want(t, "took") // it has 20 ms left when the Hold ends
		h.want(t, "not applied+busy")
	})
}

func TestHoldTime(t *testing.T) {
	sub(t, "is full again only with renew, if others were answered", func(t *testing.T, s *sender, q *queue) {
		queues, ops := []*batch.Queue{q.Queue, q.Queue}, takes("k l") // it waits for the first alone
		for i := range 8 {
			answered, renew, late := i&1 > 0, i&2 > 0, i&4 > 0
			s.before = failing(limiter.ErrNotApplied, func([]*batch.Group) bool { return !answered })
			<-time.After(ms) // the last answer was earlier
			first := ask(t.Context(), q, ops[0])
			limited, began := limited(t.Context(), t, timeout), time.Now()
			h, err := batch.HoldAll(limited, queues, ops, renew)
			testenv.Must(t, err)
			first.wait()
			pause, ends := 20*ms, timeout // it waits for a connection
			if late {
				pause = timeout - s.takes/2
			}
			if answered && renew {
				ends += s.takes + pause
			}
			<-time.After(pause)
			if err = h.Begin(limited, false, 20*ms); errors.Is(err, limiter.ErrNotApplied) != (late && ends == timeout) {
				t.Errorf("answered %v, renew %v, a connection after %v: Begin = %v", answered, renew, pause, err)
			}
			longest := opcontext.LongestLockWait(limited)
			if row, queue, _ := opcontext.LockWait(limited); err == nil && (row != min(20*ms, longest) || queue != 2*(longest-row)) {
				t.Errorf("answered %v, renew %v: it waits %v for its row and %v in the queue, of at most %v", answered, renew, row, queue, longest)
			}
			<-limited.Done()
			testenv.Equal(t, time.Since(began), max(ends, s.takes+pause), "its end: answered", answered, "renew", renew)
			h.End(err)
		}
	})
	for failed, want := range map[error]string{limiter.ErrNotApplied: "not applied", limiter.ErrInvalid: "not applied+busy"} {
		sub(t, fmt.Sprint("is the store's fault or not after an error in one table: ", failed), func(t *testing.T, s *sender, q *queue) {
			queues := []*batch.Queue{q.Queue, open(s, q.config).Queue}
			s.before = failing(failed, func(sent []*batch.Group) bool { return sent[0].Op().Key == "locked" })
			unsent, err := batch.HoldAll(limited(t.Context(), t, time.Second), queues, takes("k m"), true)
			testenv.Must(t, err)
			time.AfterFunc(ms, func() { ask(t.Context(), q, take("locked", 1)).want(t, class(failed)); s.counters.Answered() })
			behind, err := batch.HoldAll(limited(t.Context(), t, timeout), queues, takes("l m"), true)
			wantError(t, err, want)
			testenv.Equal(t, unsent.Busy(), want != "not applied", "the other one is busy")
			behind.End(limiter.ErrNotApplied)
			unsent.End(limiter.ErrNotApplied)
		})
	}
	sub(t, "lasts as long as a connection is being made", func(t *testing.T, _ *sender, q *queue) {
		ask(t.Context(), q, take("k", 1))
		dialing := &opcontext.Deadlines{Dialing: func() bool { return true }}
		limited, began := dialing.WithTimeout(t.Context(), timeout), time.Now()
		h, err := batch.HoldAll(limited, []*batch.Queue{q.Queue}, takes("k"), true)
		testenv.Must(t, err)
		h.End(limiter.ErrNotApplied)
		<-limited.Done()
		testenv.Equal(t, time.Since(began) >= opcontext.DialTimeout, true, "it waited", time.Since(began), "for a connection, want", opcontext.DialTimeout)
	})
}

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
		h.End(nil)
	})
	apart(t, "of a key that it makes hot", 4, 2, func(t *testing.T, _ *sender, q *queue) {
		ask(t.Context(), q, takes("x k")...)
		h := hold(t.Context(), q, op)
		h.release(t)
		testenv.Equal(t, h.Waited(), true, "the Hold waited for the take before it")
	})
	for failed, want := range map[error]string{limiter.ErrNotApplied: "2 unknown", nil: "2 took"} {
		apart(t, fmt.Sprint("whose error decides the time of its next call: ", failed), 4, 8, func(t *testing.T, s *sender, q *queue) {
			h := hold(t.Context(), q, op)
			behind := ask(t.Context(), q, op, booking("x")) // for the key, and for the slot
			s.takes = 150 * ms
			<-time.After(s.takes)
			s.counters.Answered() // in another table
			h.End(failed)
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
			defer func() { h.End(err) }()
			if err != nil {
				busy := errors.Is(err, limiter.ErrKeyBusy) || h.Busy() || failed.Load() > before
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
