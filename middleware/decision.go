package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// Decision is the decision on one request. [Rules.Decide] fills it in. It must not be copied.
type Decision struct {
	Result  limiter.Result // of the whole
	Results []RuleResult   // one for each rule, in the order of the rules
	Binding int            // the index of the rule that decides: see [limiter.AllResult]
	one     [1]RuleResult  // Results, if there is one rule: this saves an allocation
}

// RuleResult is what one rule contributes to a [Decision].
type RuleResult struct {
	Limiter Limiter
	Key     string
	Cost    int64
	Asked   bool           // whether Result is known; otherwise it is the zero Result
	Result  limiter.Result // of this limiter
}

// Decide asks the limiters for a decision on a request. It finds all keys first. The error matches
// [ErrNoKey] if there is no key; then no limiter was asked. Otherwise it is the limiter's.
//
// With several limiters, those of cost 0 are asked first. They take nothing, and refuse a request if their
// key is in debt, blocked, booked beyond now or above its limit. If one refuses, the others are not asked, and
// nothing is charged. If all costs are 0, the limiter with the least left decides.
func (r *Rules[R]) Decide(ctx context.Context, request R, d *Decision) error {
	if d.Results = d.one[:]; len(r.rules) > 1 {
		d.Results = make([]RuleResult, len(r.rules))
	}
	for i := range d.Results {
		if err := r.rules[i].find(request, &d.Results[i]); err != nil {
			return err
		}
	}
	err := d.ask(ctx, r.all)
	if err != nil {
		d.forget()
	}
	return err
}

// find finds the key and the cost of a request.
func (r *Rule[R]) find(request R, p *RuleResult) (err error) {
	p.Limiter, p.Cost = r.Limiter, 1
	if p.Key, err = r.Key(request); err == nil && p.Key == "" {
		return NoKey(WithoutKey, "the key function returned an empty key; return one, or leave such requests out with Skip")
	}
	if err != nil {
		if !errors.Is(err, ErrNoKey) {
			err = fmt.Errorf("%w: %w", ErrNoKey, err)
		}
		return err
	}
	if r.Cost != nil {
		p.Cost = r.Cost(request)
	}
	return nil
}

// ask asks the limiters.
func (d *Decision) ask(ctx context.Context, all bool) error {
	var claims []limiter.Claim
	var claiming []int // the rules of the claims
	refused := false
	for i := range d.Results {
		p := &d.Results[i]
		if all && p.Cost != 0 {
			claims = append(claims, limiter.Claim{Limiter: p.Limiter.(*limiter.Limiter), Key: p.Key, Cost: p.Cost})
			claiming = append(claiming, i)
			continue
		}
		var err error
		if p.Result, err = p.Limiter.AllowN(ctx, p.Key, p.Cost); err != nil {
			return err
		}
		p.Asked, refused = true, refused || !p.Result.Allowed
	}
	if refused || len(claims) == 0 {
		d.bind()
		return nil
	}
	res, err := limiter.AllowAll(ctx, claims...)
	if err != nil {
		return err
	}
	for i, rule := range claiming {
		d.Results[rule].Result, d.Results[rule].Asked = res.Each[i], res.Each[i].Source != 0
	}
	d.Result, d.Binding = res.Result, claiming[res.Binding]
	return nil
}

// bind makes the Result of the whole that of one rule.
func (d *Decision) bind() {
	d.Binding = -1
	for i := range d.Results {
		if p := &d.Results[i]; p.Asked && (d.Binding < 0 || p.binds(&d.Results[d.Binding])) {
			d.Binding = i
		}
	}
	d.Result = d.Results[d.Binding].Result
}

// binds reports whether p decides rather than q, which comes before it. That is the refusal that can pass
// last, otherwise the rule with the least left. A failure policy does not know what is left.
func (p *RuleResult) binds(q *RuleResult) bool {
	a, b := &p.Result, &q.Result
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case !a.Allowed:
		return a.RetryAfter > b.RetryAfter
	case a.Source == limiter.SourcePolicy || b.Source == limiter.SourcePolicy:
		return a.Source != limiter.SourcePolicy
	}
	return a.Remaining < b.Remaining
}

// forget forgets the results of single limiters.
func (d *Decision) forget() {
	d.Result, d.Binding = limiter.Result{}, 0
	for i := range d.Results {
		d.Results[i].Asked, d.Results[i].Result = false, limiter.Result{}
	}
}

// Pass lets a request pass for which [Rules.Decide] returned err, if the store caused that error: see
// [limiter.StoreFailed]. The Result is then that of [limiter.FailOpen]. Otherwise Pass reports false.
func (d *Decision) Pass(err error) bool {
	if errors.Is(err, ErrNoKey) || !limiter.StoreFailed(err) {
		return false
	}
	d.Result = limiter.Result{Allowed: true, Source: limiter.SourcePolicy, Taken: d.Results[0].Cost}
	return true
}

// Violated returns the names of the limiters that had no room.
func (d *Decision) Violated() (names []string) {
	for i := range d.Results {
		if p := &d.Results[i]; p.Asked && !p.Result.Allowed {
			names = append(names, p.Limiter.Name())
		}
	}
	return names
}

// GiveBack refunds what was taken for a request that ran for took, also if its client has left. It keeps
// the deadline of ctx, because the response waits for it, unless it has passed. What was taken has come back
// by itself ResetAfter later: a refund would then credit what other requests were charged. It returns the
// errors of the limiters. If the deadline left too little time, they match [limiter.ErrNotApplied] or
// [limiter.ErrOutcomeUnknown], not [limiter.ErrCanceled].
func (d *Decision) GiveBack(ctx context.Context, took time.Duration) (errs []error) {
	deadline, _ := ctx.Deadline()
	if ctx = context.WithoutCancel(ctx); time.Until(deadline) > 0 { // there is one, and it has not passed
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for i := range d.Results {
		p := &d.Results[i]
		if !p.Asked || p.Cost == 0 || took >= p.Result.ResetAfter {
			continue
		}
		_, err := p.Limiter.(refunder).RefundOf(ctx, p.Key, p.Cost, p.Result)
		if errors.Is(err, limiter.ErrCanceled) { // by the deadline, not by the client
			class := limiter.ErrNotApplied
			if errors.Is(err, limiter.ErrOutcomeUnknown) {
				class = limiter.ErrOutcomeUnknown
			}
			err = fmt.Errorf("limiter %q: %w: the request's deadline left too little time to give the cost back", p.Limiter.Name(), class)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
