package batch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

func TestBadRowDecidesForNoOther(t *testing.T) {
	for _, class := range []error{limiter.ErrInvalid, limiter.ErrNotApplied} {
		sub(t, class.Error(), func(t *testing.T, s *sender, q *queue) {
			bad := errors.New("bad row")
			s.before = func(_ context.Context, groups []*batch.Group) error {
				for _, g := range groups {
					if g.Op().Key == "bad" {
						return fmt.Errorf("%w: %w", class, bad)
					}
				}
				return nil
			}
			answers := ask(t.Context(), q, take("x", 1), take("y", 1), take("a", 1), take("bad", 1), take("b", 1))()
			for i, a := range answers {
				if i == 3 {
					if !errors.Is(a.err, bad) || !errors.Is(a.err, class) {
						t.Errorf("the take of the bad row: %v, want %v", a.err, class)
					}
					continue
				}
				if a.err != nil || !a.state.Took {
					t.Errorf("take %d: %+v", i, a)
				}
			}
			sent := 0
			for _, st := range s.statements() {
				sent += int(st.units["bad"])
			}
			if sent != 2 {
				t.Errorf("the bad row was sent %d times, want once with others and once alone", sent)
			}
		})
	}
}

// The error counts, also if the store has decided the calls before.
func TestUnknownOutcomeIsNotSentAgain(t *testing.T) {
	unknown := func(_ context.Context, groups []*batch.Group) error {
		if len(groups) > 1 || groups[0].Op().Key == "lone" {
			return limiter.ErrOutcomeUnknown
		}
		return nil
	}
	for name, setUp := range map[string]func(s *sender){
		"before the store decides": func(s *sender) { s.before = unknown },
		"after it has decided":     func(s *sender) { s.after = unknown },
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			setUp(s)
			for i, a := range ask(t.Context(), q, take("lone", 1), take("y", 1), take("a", 1), take("b", 1))() {
				if errors.Is(a.err, limiter.ErrOutcomeUnknown) != (i != 1) || a.state.Took != (i == 1) {
					t.Errorf("take %d: %+v, want ErrOutcomeUnknown of all but the second", i, a)
				}
			}
			if n := len(s.statements()); n != 3 {
				t.Errorf("%d statements, want 3", n)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.before = func(_ context.Context, groups []*batch.Group) error {
			if len(groups) > 1 {
				panic("broken")
			}
			return nil
		}
		for i, a := range ask(t.Context(), q, take("x", 1), take("y", 1), take("a", 1), take("b", 1))() {
			if (i > 1) != errors.Is(a.err, limiter.ErrOutcomeUnknown) {
				t.Errorf("take %d: %v", i, a.err)
			}
		}
		s.connect = func() error { panic("broken") }
		for i, a := range ask(t.Context(), q, take("x", 1), take("y", 1))() {
			if !errors.Is(a.err, limiter.ErrNotApplied) {
				t.Errorf("take %d: %v", i, a.err)
			}
		}
		synctest.Wait()
		s.connect = nil
		if n := took(t, ask(t.Context(), q, take("a", 1))()); n != 1 {
			t.Error("the queue has stopped")
		}
	})
}

func TestNoConnection(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.dial = 5 * ms
		var up atomic.Bool
		s.connect = func() error {
			if !up.Load() {
				return limiter.ErrNotApplied
			}
			return nil
		}
		for i, a := range ask(t.Context(), q, take("a", 1), take("a", 1), take("b", 1), take("c", 1))() {
			if !errors.Is(a.err, limiter.ErrNotApplied) || a.after > 2*s.dial {
				t.Errorf("take %d: %v after %v", i, a.err, a.after)
			}
		}
		if stats := s.counters.Stats(); len(s.statements()) != 0 || stats != (limiter.StoreStats{}) {
			t.Errorf("something was sent, or counted: %+v", stats)
		}
		up.Store(true)
		if n := took(t, ask(t.Context(), q, take("a", 1))()); n != 1 {
			t.Error("the queue has stopped")
		}
	})
}

func TestFullTimeBehindOthers(t *testing.T) {
	for name, keys := range map[string][]string{
		"behind its own key":                {"k", "k", "k"},
		"behind as many statements as fit":  {"a", "b", "c"},
		"behind its own key and two others": {"a", "b", "b", "c", "b"},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			s.takes = 150 * ms // two of them are more than the time limit
			var ops []limiter.Op
			for _, key := range keys {
				ops = append(ops, take(key, 1))
			}
			if n := took(t, ask(t.Context(), q, ops...)()); n != len(keys) {
				t.Errorf("%d took, want %d", n, len(keys))
			}
		})
	}
}

func TestNoMoreTimeBehindAHungStore(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = time.Hour
		first := ask(t.Context(), q, take("k", 1))
		<-time.After(100 * ms)
		for i, a := range append(ask(t.Context(), q, take("k", 1), take("k", 1))(), first()...) {
			if a.err == nil || a.after != timeout {
				t.Errorf("take %d: %v after %v, want an error after %v", i, a.err, a.after, timeout)
			}
		}
		<-time.After(timeout) // until the last statement has ended
	})
}
