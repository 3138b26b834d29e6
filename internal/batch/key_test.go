package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

// Key queues are reused for other keys, which must not find anything of the key before. Here
// everything that can happen to a key queue does: it has few or many calls, its callers leave, its
// statement fails, and it is sent on its own.
func TestReusedKeyQueues(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		s.before = failing(limiter.ErrNotApplied, func(groups []*batch.Group) bool {
			return together(groups) && groups[0].Op().Key[0] == 'b'
		})
		policy := limiter.PerHour(5) // one token in 12 minutes: none comes back meanwhile
		type round struct {
			ops   []limiter.Op
			asked []*asked
		}
		begin := func(n int) (b round) {
			for range 40 {
				// The keys of each round are new ones.
				op := within(time.Minute, fmt.Sprint([]string{"good", "good", "bad"}[r.IntN(3)], n, "-", r.IntN(9)))
				op.Cost, op.Policy = 1+r.Int64N(3), policy
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				b.ops, b.asked = append(b.ops, op), append(b.asked, ask(ctx, q, op))
				if r.IntN(4) == 0 {
					cancel()
				}
				if r.IntN(8) == 0 {
					<-time.After(3 * ms)
				}
			}
			return b
		}
		check := func(b round) {
			rows := map[string]limiter.Row{}
			granted, doubt := map[string]int64{}, map[string]int64{}
			for i, op := range b.ops {
				a := b.asked[i].wait()[0]
				granted[op.Key] += 0 // also a key of which nothing was granted is checked
				switch {
				case errors.Is(a.err, limiter.ErrOutcomeUnknown): // from now on we cannot tell
					doubt[op.Key] += op.Cost
				case errors.Is(a.err, limiter.ErrCanceled): // it is not charged
				case a.err != nil:
					t.Errorf("seed %d: %s: %v", seed, op.Key, a.err)
				case doubt[op.Key] == 0:
					row, want := op.Apply(rows[op.Key], time.Now().UnixNano())
					rows[op.Key] = row
					testenv.Equal(t, a.state.Took, want.Took, "granted: seed", seed, "cost", op.Cost, "of", op.Key)
				}
				if a.state.Took {
					granted[op.Key] += op.Cost
				}
			}
			<-time.After(3 * s.takes) // the statements of callers who have left
			s.mu.Lock()
			defer s.mu.Unlock()
			step := int64(policy.Step())
			for key, n := range granted {
				row := s.rows[key]
				if charged := (row.FullAt - row.At + step - 1) / step; charged < n || charged > n+doubt[key] {
					t.Errorf("seed %d: %s was charged %d, want %d, and of %d it is not known", seed, key, charged, n, doubt[key])
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

// A release makes room for other operations.
func TestReleases(t *testing.T) {
	ops := []limiter.Op{
		of(limiter.OpTake, "x", 1), of(limiter.OpRefund, "x", 1), of(limiter.OpRelease, "x", 1),
		of(limiter.OpTake, "x", 1), of(limiter.OpRelease, "x", 1),
	}
	for i := range ops {
		ops[i].ID = int64(i)
	}
	sub(t, "go first, in their order", func(t *testing.T, s *sender, _ *queue) {
		var sent []int64
		s.after = func(_ context.Context, groups []*batch.Group) error {
			for _, c := range groups[0].Calls {
				sent = append(sent, c.Op.ID)
			}
			return nil
		}
		q := open(s, batch.Config{Shared: 1, Single: 1, HotKey: 8, GiveBacks: 2, Merges: merges})
		ask(t.Context(), q, append(ops[:1:1], ops...)...).wait()
		testenv.Equal(t, sent, []int64{0, 2, 4, 0, 3, 1})
	})
	slowly(t, "are sent although their key fails fast", func(t *testing.T, s *sender, q *queue) {
		answers := ask(t.Context(), q, ops...)
		<-time.After(timeout)
		late := ask(t.Context(), q, ops[2])
		close(s.unlock)
		// The releases wait for their row.
		answers.want(t, "2 not applied+failed fast, not applied+row locked, not applied+failed fast, not applied+row locked")
		late.want(t, "refused")
	})
}
