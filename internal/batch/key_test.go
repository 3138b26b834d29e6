package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Key queues are reused for other keys, which must not find anything of the key before. Here
// everything that can happen to a key queue does: it has few or many calls, its callers leave, its
// statement fails, and it is sent on its own.
func TestReusedKeyQueues(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		s.before = func(_ context.Context, groups []*batch.Group) error {
			if len(groups) > 1 && groups[0].Op().Key[0] == 'b' {
				return limiter.ErrNotApplied
			}
			return nil
		}
		policy := limiter.PerHour(5) // one token in 12 minutes: none comes back meanwhile
		type round struct {
			ops  []limiter.Op
			wait []func() []answer
		}
		begin := func(n int) (b round) {
			for range 40 {
				// The keys of each round are new ones.
				op := take(fmt.Sprint([]string{"good", "good", "bad"}[r.IntN(3)], n, "-", r.IntN(9)), 1+r.Int64N(3))
				op.Policy, op.Timeout = policy, time.Minute
				ctx, cancel := context.WithCancel(t.Context())
				b.ops = append(b.ops, op)
				b.wait = append(b.wait, ask(ctx, q, op))
				if r.IntN(4) == 0 {
					cancel()
				}
				t.Cleanup(cancel)
				if r.IntN(8) == 0 {
					<-time.After(3 * ms)
				}
			}
			return b
		}
		check := func(b round) {
			type key struct {
				row            limiter.Row
				granted, doubt int64
			}
			keys := map[string]*key{}
			for i, op := range b.ops {
				a := b.wait[i]()[0]
				k := keys[op.Key]
				if k == nil {
					k = &key{}
					keys[op.Key] = k
				}
				var want limiter.State
				switch {
				case errors.Is(a.err, limiter.ErrOutcomeUnknown): // from now on we cannot tell
					k.doubt += op.Cost
				case errors.Is(a.err, limiter.ErrCanceled): // it is not charged
				case a.err != nil:
					t.Errorf("seed %d: %s: %v", seed, op.Key, a.err)
				case k.doubt == 0:
					k.row, want = op.Apply(k.row, time.Now().UnixNano())
					if a.state.Took != want.Took {
						t.Errorf("seed %d: %d of %s: granted %v, want %v", seed, op.Cost, op.Key, a.state.Took, want.Took)
					}
				}
				if a.state.Took {
					k.granted += op.Cost
				}
			}
			<-time.After(3 * s.takes) // the statements of callers who have left
			s.mu.Lock()
			defer s.mu.Unlock()
			step := int64(policy.Step())
			for name, k := range keys {
				row := s.rows[name]
				if charged := (row.FullAt - row.At + step - 1) / step; charged < k.granted || charged > k.granted+k.doubt {
					t.Errorf("seed %d: %s was charged %d, want %d, and of %d it is not known", seed, name, charged, k.granted, k.doubt)
				}
			}
		}
		last := begin(0)
		for n := range 30 {
			next := begin(n + 1) // while the round before is still in flight
			check(last)
			last = next
		}
		check(last)
	})
}

// apart runs a test as in does, on a queue of one statement of each kind at a time.
func apart(t *testing.T, rows, hotKey int, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	in(t, func(t *testing.T, s *sender, _ *queue) {
		test(t, s, open(s, batch.Config{Keys: rows, Shared: 1, Single: 1, HotKey: hotKey, Merges: merges, Deadlines: new(opcontext.Deadlines)}))
	})
}

// slow makes the statements of a key take d longer.
func slow(key string, d time.Duration) func(ctx context.Context, groups []*batch.Group) error {
	return func(_ context.Context, groups []*batch.Group) error {
		if groups[0].Op().Key == key {
			<-time.After(d)
		}
		return nil
	}
}

func TestKeyThatMovesLeavesNoPlace(t *testing.T) {
	apart(t, 1, 2, func(t *testing.T, s *sender, q *queue) {
		s.before = slow("first", 50*ms)
		// One take of "moves" waits behind the first key. With a second one the key is
		// hot and moves to the other line, and this line skips it.
		waits := []func() []answer{ask(t.Context(), q, take("first", 1), take("moves", 1), take("moves", 1), take("second", 1))}
		<-time.After(2 * s.takes)
		if n := len(s.statements()); n != 1 {
			t.Fatalf("%d statements, want that of the key that moved", n)
		}
		waits = append(waits, ask(t.Context(), q, take("third", 1)))
		for _, wait := range waits {
			took(t, wait())
		}
		var order []string
		for _, st := range s.statements() {
			order = append(order, st.keys...)
		}
		if want := []string{"moves", "first", "second", "third"}; !slices.Equal(order, want) {
			t.Errorf("statements for %q, want %q", order, want)
		}
	})
}

func TestKeyIsSentAloneOnlyOnce(t *testing.T) {
	apart(t, 4, 100, func(t *testing.T, s *sender, q *queue) {
		s.before = func(_ context.Context, groups []*batch.Group) error {
			if len(groups) > 1 && groups[0].Op().Key == "bad" {
				return limiter.ErrInvalid
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(t.Context(), q, take("first", 1), take("bad", 1))
		leave := ask(ctx, q, take("c", 1), take("d", 1))
		<-time.After(2*s.takes + ms)
		cancel() // after they have failed beside the bad one, and before each is sent on its own
		for i, a := range leave() {
			if !errors.Is(a.err, limiter.ErrCanceled) || errors.Is(a.err, limiter.ErrOutcomeUnknown) {
				t.Errorf("take %d: %v, want ErrCanceled, and nothing unknown", i, a.err)
			}
		}
		took(t, first())
		<-time.After(s.takes)
		took(t, ask(t.Context(), q, take("x", 1), take("e", 1), take("f", 1), take("g", 1))())
		sent := s.statements()
		if last := sent[len(sent)-1].keys; !slices.Equal(last, []string{"e", "f", "g"}) {
			t.Errorf("the last statement was for %q, want e, f and g together", last)
		}
	})
}
