package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/steps"
)

// recorder is a store that keeps the last states it told, for one goroutine.
type recorder struct {
	limiter.Store
	last limiter.State
	all  map[ledger.ID]limiter.State // of the last decision over several limits
}

func (r *recorder) Do(ctx context.Context, op limiter.Op) (s limiter.State, err error) {
	r.last, err = r.Store.Do(ctx, op)
	return r.last, err
}

// DoAll implements [limiter.AllStore].
func (r *recorder) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	states, err := r.Store.(limiter.AllStore).DoAll(ctx, ops)
	r.all = map[ledger.ID]limiter.State{}
	for i, s := range states {
		r.all[ledger.ID{Limiter: ops[i].Name, Key: ops[i].Key}] = s
	}
	return states, err
}

// watched is a key, and what was told of it.
type watched struct {
	name     string
	policy   limiter.Policy
	key      string
	segments []steps.Segment
	// Of the segment that is under way: what a bucket owed when it began, the most that a
	// refusal told of since, and what was taken.
	debt, owed time.Duration
	taken      int64
}

// timeline is what callers are told of some keys while a clock makes steps.
type timeline struct {
	gate sync.RWMutex // held by the callers, while steps are to find none under way

	mu      sync.Mutex
	keys    []*watched
	calls   int64
	failed  []error
	refused []error // for longer than can be
}

func newTimeline(seed uint64, began time.Time) *timeline {
	h := new(timeline)
	for _, c := range kinds.Clocked {
		for i := range 2 {
			h.keys = append(h.keys, &watched{name: c.Name, policy: c.Policy, key: fmt.Sprintf("%s %d", keyOf(seed), i)})
		}
	}
	h.segment(began)
	return h
}

// segment begins a segment of all keys.
func (h *timeline) segment(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.keys {
		k.segments = append(k.segments, steps.Segment{Began: began.UnixNano()})
		k.owed, k.taken = 0, 0
	}
}

// owing ends a segment: no key may have owed more than it did when the segment began and
// was taken in it. debts is what buckets owe now.
func (h *timeline) owing(debts map[ledger.ID]time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.keys {
		b, ok := k.policy.(limiter.TokenBucket)
		if !ok {
			continue
		}
		if most := k.debt + time.Duration(k.taken)*b.Step() + limiter.ClockTolerance; k.owed > most {
			h.refused = append(h.refused, fmt.Errorf("%s: a take was refused because the key owes %v, which is %v at most", k.name, k.owed, most))
		}
		k.debt = debts[ledger.ID{Limiter: k.name, Key: k.key}]
	}
}

// debts reads what each bucket owed at its latest take.
func debts(ctx context.Context, conn *pgx.Conn) (map[ledger.ID]time.Duration, error) {
	rows, err := conn.Query(ctx, "SELECT limiter, key, greatest(0, full_at - at) FROM limiter_token_buckets")
	if err != nil {
		return nil, err
	}
	all := map[ledger.ID]time.Duration{}
	var name string
	var key []byte
	var debt int64
	_, err = pgx.ForEachRow(rows, []any{&name, &key, &debt}, func() error {
		all[ledger.ID{Limiter: name, Key: string(key)}] = time.Duration(debt)
		return nil
	})
	return all, err
}

// note enters an answer. It goes by its own reading of the clock, and by none of ours.
func (h *timeline) note(k *watched, cost int64, r limiter.Result, s limiter.State, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	segment := &k.segments[len(k.segments)-1]
	switch {
	case err != nil:
		h.failed = append(h.failed, err)
	case s.Took:
		segment.Grants = append(segment.Grants, steps.Grant{Cost: cost, State: s})
		k.taken += cost
	default:
		segment.Refuse(s)
		k.owed = max(k.owed, time.Duration(s.Row.FullAt-s.Now))
		if most := kinds.Lockout(k.policy) + limiter.ClockTolerance; r.RetryAfter > most {
			h.refused = append(h.refused, fmt.Errorf("%s: a take is to come back in %v, want at most %v: %+v", k.name, r.RetryAfter, most, s))
		}
	}
}

// callers lets n callers take from the keys until stop is called.
func (h *timeline) callers(ctx context.Context, r *rand.Rand, n int, of []limiter.Store) (stop func()) {
	recorders := make([]*recorder, n)
	for i := range recorders {
		recorders[i] = &recorder{Store: of[i%len(of)]}
	}
	return repeat(r, n, func(r *rand.Rand, caller int) {
		h.gate.RLock()
		defer h.gate.RUnlock()
		if r.IntN(4) == 0 {
			h.takeSeveral(ctx, recorders[caller], r)
		} else {
			h.take(ctx, recorders[caller], h.keys[r.IntN(len(h.keys))], 1+r.Int64N(3))
		}
	})
}

// take asks for cost of a key, and notes the answer.
func (h *timeline) take(ctx context.Context, rec *recorder, k *watched, cost int64) (allowed bool) {
	r, err := rec.limiter(k).AllowN(ctx, k.key, cost)
	h.note(k, cost, r, rec.last, err)
	return r.Allowed
}

// limiter returns a Limiter of a key. One of its own for each call is a few words of memory.
func (r *recorder) limiter(k *watched) *limiter.Limiter {
	lim, err := limiter.New(r, k.name, k.policy, limiter.WithTimeout(5*time.Second))
	if err != nil {
		panic(err) // the policies are the test's own
	}
	return lim
}

// takeSeveral asks for some of several keys in one decision, and notes the answer.
func (h *timeline) takeSeveral(ctx context.Context, rec *recorder, r *rand.Rand) {
	var keys []*watched
	var claims []limiter.Claim
	for _, i := range r.Perm(len(h.keys))[:3] {
		k := h.keys[i]
		if op := (limiter.Op{Policy: k.policy}); op.CountsRefusals() {
			continue // such a policy cannot take part
		}
		keys = append(keys, k)
		claims = append(claims, limiter.Claim{Limiter: rec.limiter(k), Key: k.key, Cost: 1 + r.Int64N(3)})
	}
	if len(claims) == 0 {
		return
	}
	res, err := limiter.AllowAll(ctx, claims...)
	for i, claim := range claims {
		state := rec.all[ledger.ID{Limiter: keys[i].name, Key: claim.Key}]
		switch {
		case err != nil:
			h.note(keys[i], claim.Cost, limiter.Result{}, state, err)
		case res.Allowed || !state.Took: // otherwise it had room, and was not charged
			h.note(keys[i], claim.Cost, res.Each[i], state, nil)
		}
	}
}
