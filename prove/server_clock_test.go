package prove_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/steps"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

const (
	stepsARound = 10 // how many steps a round makes
	year        = 8766 * time.Hour
	farthest    = 40 * year // how far the clock goes from this machine's: all of it lies between 1970 and 2079
)

// clockStep returns where to set a clock that is so far ahead: by 1 ms to 10 years forwards or backwards.
func clockStep(r *rand.Rand, ahead time.Duration) time.Duration {
	by := distance(r, 10*year)
	if r.IntN(2) == 0 && ahead-by > -farthest || ahead+by > farthest {
		return ahead - by
	}
	return ahead + by
}

// distance is 1 ms to most, each order of magnitude as likely as another.
func distance(r *rand.Rand, most time.Duration) time.Duration {
	by := time.Millisecond
	for by < most && r.IntN(12) > 0 {
		by *= 10
	}
	by = min(most, time.Duration((0.1+0.9*r.Float64())*float64(by))).Round(time.Microsecond)
	return max(by, time.Millisecond)
}

func TestClockSteps(t *testing.T) {
	server, clock := newServerWithClock(t)
	of := stores(t, 2, server.DSN()+"&pool_max_conns=4")
	for _, c := range []struct {
		name  string
		quiet bool
	}{{"clock steps between statements", true}, {"clock steps under way", false}} {
		t.Run(c.name, func(t *testing.T) {
			proof.Rounds(t, c.name, campaign.Sizes{CI: 1, Nightly: 20, Release: 60}, func(t *testing.T, r *campaign.Round) {
				h := newTimeline(t, r.Seed, clock.Now(), of)
				began, made := time.Now(), []time.Duration(nil)
				stop := h.callers(t.Context(), r.Rand, 16)
				for range stepsARound {
					pause(t.Context(), r, 150*time.Millisecond)
					before := clock.Ahead()
					if c.quiet { // it is known of each grant whether it came before or after the step
						h.gate.Lock()
						h.settle(t, server.DSN())
					}
					clock.Set(clockStep(r.Rand, before))
					if c.quiet {
						h.segment(clock.Now())
						h.gate.Unlock()
					}
					made = append(made, clock.Ahead()-before)
					r.Count(campaign.ClockSteps, 1)
				}
				pause(t.Context(), r, 150*time.Millisecond)
				stop()
				if c.quiet {
					h.owing(nil)
				}
				h.judge(t, r, c.quiet, time.Since(began), made)
				h.comeBack(t, r)
			})
		})
	}
}

// settle ends a segment when no statement is under way any more.
func (h *timeline) settle(t *testing.T, dsn string) {
	quiet(t, dsn)
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	owed := map[ledger.ID]time.Duration{}
	must(t, tables.Rows(t.Context(), conn, "", func(_ limiter.PolicyKind, name, key string, row limiter.Row) {
		owed[ledger.ID{Limiter: name, Key: key}] = time.Duration(max(0, row.FullAt-row.At))
	}))
	h.owing(owed)
}

func (h *timeline) judge(t *testing.T, r *campaign.Round, quiet bool, took time.Duration, made []time.Duration) {
	r.Count(campaign.Operations, h.calls)
	var over int64
	for _, k := range h.keys {
		var more int64
		if quiet {
			more = kinds.Bounds(k.policy).Over(k.segments)
		} else {
			for _, g := range k.segments[0].Grants {
				more += g.Cost
			}
			more = max(0, more-steps.AtMost(kinds.Bounds(k.policy), took, made))
		}
		if over += more; more > 0 {
			t.Logf("%s: %d over after steps of %v: %+v", k.name, more, made, k.segments)
		}
	}
	r.None(campaign.OverAdmitted, over)
	if err := errors.Join(h.refused[:min(len(h.refused), 3)]...); err != nil {
		t.Errorf("%d refusals, after steps of %v: %v", len(h.refused), made, err)
	}
	if err := errors.Join(h.failed[:min(len(h.failed), 3)]...); err != nil {
		t.Errorf("%d takes failed, after steps of %v: %v", len(h.failed), made, err)
	}
}

// comeBack waits until each key that can be granted soon is: when what it owed is over, and
// what is taken for statements that wait for each other, plus the time of a recovery.
func (h *timeline) comeBack(t *testing.T, r *campaign.Round) {
	began := time.Now()
	for i, k := range h.keys {
		if kinds.Lockout(k.policy) > time.Second {
			continue
		}
		most := kinds.Lockout(k.policy) + limiter.ClockTolerance + recovery
		for !h.take(t.Context(), h.limiters[0], i, 1) {
			if took := time.Since(began); took > most {
				t.Errorf("%s: a key is not granted anything for %v", k.name, took)
				break
			}
			wait(t.Context(), 5*time.Millisecond)
		}
	}
	r.Most("until each key was granted again", time.Since(began))
}

// noting is a store that notes what it told.
type noting struct {
	limiter.Store
	*timeline
}

// Do implements [limiter.Store].
func (n noting) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s, err := n.Store.Do(ctx, op)
	n.note(op, s, err)
	return s, err
}

// DoAll implements [limiter.AllStore].
func (n noting) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	states, err := n.Store.(limiter.AllStore).DoAll(ctx, ops)
	refused := slices.ContainsFunc(states, func(s limiter.State) bool { return !s.Took })
	for i, op := range ops {
		switch {
		case err != nil:
			n.note(op, limiter.State{}, err)
		case !refused || !states[i].Took: // otherwise it had room, and was not charged
			n.note(op, states[i], nil)
		}
	}
	return states, err
}

// watched is a key, and what was told of it.
type watched struct {
	name     string
	policy   limiter.Policy
	key      string
	segments []steps.Segment
	// Of the segment under way: what a bucket owed at first, the most that a refusal told of, and what was taken.
	debt, owed time.Duration
	taken      int64
}

// timeline is what callers are told of some keys while a clock makes steps.
type timeline struct {
	gate sync.RWMutex // held by the callers, while steps are to find none under way

	limiters [][]*limiter.Limiter // of each store, in the order of keys

	mu      sync.Mutex
	keys    []*watched
	calls   int64
	failed  []error
	refused []error // for longer than can be
}

func newTimeline(t *testing.T, seed uint64, began time.Time, of []limiter.Store) *timeline {
	h := &timeline{limiters: make([][]*limiter.Limiter, len(of))}
	for n, c := range slices.Concat(kinds.Clocked, kinds.Clocked) {
		h.keys = append(h.keys, &watched{name: c.Name, policy: c.Policy, key: fmt.Sprintf("%s %d", keyOf(seed), n)})
		for i, store := range of {
			l, err := limiter.New(noting{store, h}, c.Name, c.Policy, limiter.WithTimeout(5*time.Second))
			must(t, err)
			h.limiters[i] = append(h.limiters[i], l)
		}
	}
	h.segment(began)
	return h
}

func (h *timeline) segment(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.keys {
		k.segments = append(k.segments, steps.Segment{Began: began.UnixNano()})
		k.owed, k.taken = 0, 0
	}
}

// owing ends a segment: no key may owe more than at its beginning and by its takes. debts is what buckets owe now.
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

// note enters an answer. It goes by its own reading of the clock, and by none of ours.
func (h *timeline) note(op limiter.Op, s limiter.State, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	k := h.keys[slices.IndexFunc(h.keys, func(k *watched) bool { return k.name == op.Name && k.key == op.Key })]
	segment := &k.segments[len(k.segments)-1]
	switch {
	case err != nil:
		h.failed = append(h.failed, err)
	case s.Took:
		segment.Grants = append(segment.Grants, steps.Grant{Cost: op.Cost, State: s})
		k.taken += op.Cost
	default:
		segment.Refuse(s)
		k.owed = max(k.owed, time.Duration(s.Row.FullAt-s.Now))
	}
}

// callers lets n callers take from the keys until stop is called, at times from three in one decision.
func (h *timeline) callers(ctx context.Context, r *rand.Rand, n int) (stop func()) {
	return repeat(r, n, func(r *rand.Rand, caller int) {
		h.gate.RLock()
		defer h.gate.RUnlock()
		of := h.limiters[caller%len(h.limiters)]
		if r.IntN(4) > 0 {
			h.take(ctx, of, r.IntN(len(h.keys)), 1+r.Int64N(3))
			return
		}
		var keys []int
		var claims []limiter.Claim
		for _, i := range r.Perm(len(h.keys))[:3] {
			if op := (limiter.Op{Policy: h.keys[i].policy}); !op.CountsRefusals() { // such a policy cannot take part
				keys = append(keys, i)
				claims = append(claims, limiter.Claim{Limiter: of[i], Key: h.keys[i].key, Cost: 1 + r.Int64N(3)})
			}
		}
		res, err := limiter.AllowAll(ctx, claims...)
		for n, i := range keys {
			if err == nil {
				h.told(h.keys[i], res.Each[n])
			}
		}
	})
}

// take asks for cost of a key.
func (h *timeline) take(ctx context.Context, of []*limiter.Limiter, i int, cost int64) (allowed bool) {
	r, err := of[i].AllowN(ctx, h.keys[i].key, cost)
	if err == nil {
		h.told(h.keys[i], r)
	}
	return r.Allowed
}

// told checks how long a caller is to wait.
func (h *timeline) told(k *watched, r limiter.Result) {
	if most := kinds.Lockout(k.policy) + limiter.ClockTolerance; r.RetryAfter > most {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refused = append(h.refused, fmt.Errorf("%s: a take is to come back in %v, want at most %v", k.name, r.RetryAfter, most))
	}
}

// A table holds instants from 1970 to 2116. By any other clock a take is ErrInvalid, and leaves the key as it was.
func TestClockOutOfRange(t *testing.T) {
	server, clock := newServerWithClock(t)
	store := openStore(t, server.DSN())
	var all []*limiter.Limiter
	for _, c := range kinds.Clocked {
		l, err := limiter.New(store, c.Name, c.Policy, limiter.FailOpen(), limiter.WithTimeout(waitLimit))
		must(t, err)
		all = append(all, l)
	}
	for n, year := range []int{2026, 1900, 1969, 2117, 2200, 2026} {
		clock.Set(time.Until(time.Date(year, 7, 1, 0, n, 0, 0, time.UTC)))
		for _, l := range all {
			for _, key := range []string{"a key that there is", fmt.Sprint(year)} {
				res, err := l.Allow(t.Context(), key)
				switch {
				case year != 2026 && (!errors.Is(err, limiter.ErrInvalid) || res.Allowed):
					t.Errorf("%s: in %d a take from %s is %+v, %v, want ErrInvalid", l.Name(), year, key, res, err)
				case year == 2026 && (err != nil || !res.Allowed || res.Source != limiter.SourceStore):
					t.Fatalf("%s: by a clock that is right a take is %+v, %v", l.Name(), res, err)
				case n == 5 && kinds.Lockout(l.Policy()) > 24*time.Hour && res.Remaining != res.Limit-2:
					t.Errorf("%s: %d are left of %d after two takes, and some that could not be", l.Name(), res.Remaining, res.Limit)
				}
			}
		}
	}
}
