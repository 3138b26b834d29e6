package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"time"
)

// allDecision is a decision of AllowAll.
type allDecision struct {
	claims []Claim
	takes  []allTake // one for each row, in the order of Op.Compare
	ops    []Op      // of the takes
	store  AllStore

	fail     failurePolicy // the strictest
	fallback AllStore      // of failLocal
}

// allTake is the take from one row. The costs of its claims add up.
type allTake struct {
	claims     []int // by their index
	deny       *denyCache
	local      bool // one of the limiters has FailLocal
	state      State
	refused    bool // by the deny cache
	passedOpen bool // no store decided it: FailOpen let it pass
	question   question
}

// limiter returns the limiter of the take's first claim.
func (d *allDecision) limiter(t *allTake) *Limiter { return d.claims[t.claims[0]].Limiter }

// prepare checks the claims and makes the takes.
func (d *allDecision) prepare(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	ops := make([]Op, len(d.claims))
	order := make([]int, len(d.claims))
	timeout := d.claims[0].Limiter.timeout
	for i, c := range d.claims {
		l := c.Limiter
		order[i], timeout = i, min(timeout, l.timeout)
		same := func(e Claim) bool { return e.Limiter == l && e.Key == c.Key }
		if first := slices.IndexFunc(d.claims[:i], same); first >= 0 { // the policy is chosen once for a decision
			ops[i] = ops[first]
			ops[i].Cost = c.cost()
		} else if err := l.op(ctx, &ops[i], OpTake, c.Key, c.cost()); err != nil {
			return err
		}
		if err := cmp.Or(l.checkCost(&ops[i]), checkNotCounting(&ops[i])); err != nil {
			return err
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return ops[a].Compare(&ops[b]) })
	for _, i := range order {
		op := &ops[i]
		op.At, op.Timeout = ops[0].At, timeout
		if err := d.add(i, op); err != nil {
			return err
		}
	}
	return nil
}

// add adds a claim to the last take if that is from the same row, and otherwise makes a take.
func (d *allDecision) add(claim int, op *Op) error {
	l := d.claims[claim].Limiter
	last := len(d.takes) - 1
	if last < 0 || d.ops[last].Compare(op) != 0 {
		d.takes, d.ops = append(d.takes, allTake{}), append(d.ops, *op)
		last++
	} else {
		sum := &d.ops[last]
		if sum.Policy != op.Policy {
			return twoPolicies(op.Name, sum.Policy, op.Policy)
		}
		if most := op.Policy.limit(); op.Cost > most-sum.Cost {
			return fmt.Errorf("%w: limiter %q: the claims of one key cost %d and %d; the policy admits at most %d", ErrExceedsCapacity, op.Name, sum.Cost, op.Cost, most)
		}
		sum.Cost += op.Cost
	}
	t := &d.takes[last]
	t.claims = append(t.claims, claim)
	t.deny = cmp.Or(t.deny, l.deny)
	t.local = t.local || l.fail == failLocal
	return nil
}

func twoPolicies(name string, a, b Policy) error {
	if fmt.Sprint(a) == fmt.Sprint(b) {
		return invalid("limiter %q: two claims of one key would have policies with two Locations of one name (%v); load each Location once", name, a)
	}
	return invalid("limiter %q: two claims of one key would have different policies (%v; %v); use one limiter for both", name, a, b)
}

// check checks what can be wrong with the limiters, whatever the keys and costs are. It finds the store
// and the failure policy of all.
func (d *allDecision) check() error {
	if n := len(d.claims); n < 1 || n > MaxClaims {
		return invalid("AllowAll got %d claims; pass 1 to %d", n, MaxClaims)
	}
	for i, c := range d.claims {
		if c.Limiter == nil {
			return invalid("the Limiter of claim %d is nil; pass what New returned", i)
		}
	}
	first := d.claims[0].Limiter
	var err error
	if d.store, err = allStore(first.store); err != nil {
		return err
	}
	d.fail = failOpen
	for _, c := range d.claims {
		l := c.Limiter
		if !same(l.store, first.store) {
			return invalid("limiter %q and limiter %q have different stores; pass limiters of one store", first.name, l.name)
		}
		if (l.clock == nil) != (first.clock == nil) {
			return invalid("limiter %q and limiter %q: only one of them has WithClock; set it for both or for none", first.name, l.name)
		}
		switch {
		case l.fail == failClosed:
			d.fail = failClosed
		case l.fail == failLocal:
			if d.fail != failClosed {
				d.fail = failLocal
			}
			fallback, err := allStore(l.fallback)
			switch {
			case err != nil:
				return fmt.Errorf("the fallback of FailLocal: %w", err)
			case d.fallback != nil && !same(fallback, d.fallback):
				return invalid("the limiters of AllowAll have different fallbacks; pass the same one to FailLocal")
			}
			d.fallback = fallback
		}
	}
	return nil
}

// allStore returns s as an AllStore that can be compared.
func allStore(s Store) (AllStore, error) {
	all, ok := s.(AllStore)
	switch {
	case s == noStore{}:
		_, err := s.Do(context.Background(), Op{})
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%w: a %T cannot decide over several limits; pass limiters on a store of package postgres, sqlite or memory: %w", ErrInvalid, s, errors.ErrUnsupported)
	case !reflect.ValueOf(s).Comparable():
		return nil, invalid("a %T cannot be compared; use a pointer as the store", s)
	}
	return all, nil
}

// same reports whether two stores are one. The second one can be compared.
func same(a, b Store) bool {
	return reflect.ValueOf(a).Comparable() && a == b
}

// decide asks the deny caches or the store. If the store fails, it applies the failure policy. Then it
// calls the observers.
func (d *allDecision) decide(ctx context.Context) (res AllResult, err error) {
	if err := checkContext(ctx); err != nil {
		return AllResult{Result: noDecision}, err
	}
	begin := time.Now()
	source, cause := d.ask(ctx)
	told := cause
	if cause != nil {
		source, told, cause = d.failed(ctx, cause)
	}
	res.Result = noDecision
	if told == nil {
		res = d.result(source)
	}
	for i, c := range d.claims {
		if c.Limiter.observer == nil {
			continue
		}
		seen := Decision{Limiter: c.Limiter.name, Op: OpTake, Cost: c.cost(), Result: noDecision, Err: cause, Duration: time.Since(begin)}
		if res.Each != nil {
			seen.Result = res.Each[i]
			if !res.Allowed {
				seen.Result.Source = source // also if this limiter was not asked: see AllowAll
			}
		}
		seen.Result.Allowed = res.Allowed
		c.Limiter.observer(ctx, seen)
	}
	return res, told
}

// ask asks the deny caches, and otherwise the store.
func (d *allDecision) ask(ctx context.Context) (Source, error) {
	refused := false
	for i := range d.takes {
		if t := &d.takes[i]; t.deny != nil {
			t.question, t.refused = t.deny.find(&d.ops[i], &t.state)
			refused = refused || t.refused
		}
	}
	if refused {
		return SourceDenyCache, nil
	}
	if err := d.askStore(ctx, d.store, nil); err != nil {
		return 0, err
	}
	for i := range d.takes {
		if t := &d.takes[i]; t.deny != nil {
			t.deny.keep(&d.ops[i], &t.state, t.question)
		}
	}
	return SourceStore, nil
}

// askStore asks store for all takes, or for those that only accepts.
func (d *allDecision) askStore(ctx context.Context, store AllStore, only func(t *allTake) bool) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	var ops []Op
	var takes []*allTake
	for i := range d.takes {
		if t := &d.takes[i]; only == nil || only(t) {
			ops, takes = append(ops, d.ops[i]), append(takes, t)
		} else {
			t.passedOpen = true
		}
	}
	states, err := store.DoAll(ctx, ops)
	if err != nil {
		return fmt.Errorf("limiter %q: %w", d.limiter(takes[0]).name, err)
	}
	for i, t := range takes {
		t.state = states[i]
	}
	return nil
}

// failed applies the failure policy. It returns the errors for the caller and for the observers, as
// [Limiter.failed] does.
func (d *allDecision) failed(ctx context.Context, cause error) (source Source, told, seen error) {
	if d.fail == failClosed || !StoreFailed(cause) || provisional(d.store) {
		return 0, cause, cause
	}
	if d.fail == failOpen {
		for i := range d.takes {
			d.takes[i].passedOpen = true
		}
		return SourcePolicy, nil, cause
	}
	if err := d.askStore(ctx, d.fallback, func(t *allTake) bool { return t.local }); err != nil {
		both := fmt.Errorf("%w; and the fallback: %w", cause, err)
		return 0, both, both
	}
	return SourceLocal, nil, cause
}

// result returns the result of what source decided.
func (d *allDecision) result(source Source) AllResult {
	res := AllResult{Each: make([]Result, len(d.claims))}
	allowed := source != SourceDenyCache
	for i := range d.takes {
		t, op := &d.takes[i], &d.ops[i]
		var r Result
		switch {
		case t.passedOpen:
			r = Result{Allowed: true, Source: SourcePolicy}
		case source == SourceDenyCache && !t.refused:
		default:
			op.result(&t.state, &r)
			r.Source = source
			allowed = allowed && r.Allowed
		}
		for _, c := range t.claims {
			r.Taken = d.claims[c].cost()
			res.Each[c] = r
		}
	}
	if !allowed {
		for i := range res.Each {
			res.Each[i].Taken, res.Each[i].takenFrom = 0, takenFrom{}
		}
	}
	res.Binding = d.binding(res.Each, allowed)
	res.Result = res.Each[res.Binding]
	res.Allowed, res.takenFrom = allowed, takenFrom{}
	return res
}

// binding returns the claim that decides: see [AllResult].
func (d *allDecision) binding(each []Result, allowed bool) int {
	best, bestCost := -1, int64(0)
	for i := range d.takes {
		claim, cost := d.takes[i].claims[0], d.ops[i].Cost
		r := &each[claim]
		if r.Allowed != allowed || d.takes[i].passedOpen || r.Source == 0 {
			continue
		}
		if best >= 0 {
			order := cmp.Compare(each[best].RetryAfter, r.RetryAfter)
			if allowed {
				order = compareShares(r.Remaining, cost, each[best].Remaining, bestCost)
			}
			if cmp.Or(order, cmp.Compare(claim, best)) > 0 {
				continue
			}
		}
		best, bestCost = claim, cost
	}
	return max(best, 0)
}

// compareShares compares a/aCost with b/bCost.
func compareShares(a, aCost, b, bCost int64) int {
	aHi, aLo := bits.Mul64(uint64(a), uint64(bCost))
	bHi, bLo := bits.Mul64(uint64(b), uint64(aCost))
	return cmp.Or(cmp.Compare(aHi, bHi), cmp.Compare(aLo, bLo))
}
