package grpclimiter

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

// The names of the metadata.
const (
	policyField     = "ratelimit-policy"
	quotaField      = "ratelimit"
	retryAfterField = "retry-after"
)

// decision is the decision on a call.
type decision struct {
	result limiter.Result // of the whole
	parts  []part         // one for each rule
}

// part is the part of one rule in a decision.
type part struct {
	rule   *rule
	key    string
	cost   int64
	result limiter.Result // the zero Result if this limiter was not asked, or its state is not known
}

// ask asks the limiters for the decision d.
func (i *Interceptor) ask(ctx context.Context, d *decision) error {
	if !i.all {
		p := &d.parts[0]
		err := p.ask(ctx)
		d.result = p.result
		return err
	}
	var claims []limiter.Claim
	for _, p := range d.parts {
		if p.cost != 0 {
			claims = append(claims, limiter.Claim{Limiter: p.rule.limiter.(*limiter.Limiter), Key: p.key, Cost: p.cost})
		}
	}
	if len(claims) == 0 {
		return d.look(ctx)
	}
	all, err := limiter.AllowAll(ctx, claims...)
	if err != nil {
		return err
	}
	d.result = all.Result
	claim := 0
	for n := range d.parts {
		if p := &d.parts[n]; p.cost != 0 {
			p.result = all.Each[claim]
			claim++
		}
	}
	return nil
}

// ask asks one limiter.
func (p *part) ask(ctx context.Context) (err error) {
	p.result, err = p.rule.limiter.AllowN(ctx, p.key, p.cost)
	if err == nil && p.cost == 0 {
		// AllowN with 0 is a Peek, which asks about a cost of 1. This call takes nothing, so it passes.
		p.result.Allowed, p.result.RetryAfter = true, 0
	}
	return err
}

// look asks each limiter what is left, for a call that takes nothing. The limiter with the least left
// decides. A failure policy knows no quota, so its answer counts only if all answers are of that kind.
func (d *decision) look(ctx context.Context) error {
	for n := range d.parts {
		p := &d.parts[n]
		if err := p.ask(ctx); err != nil {
			return err
		}
		unknown := d.result.Source == 0 || d.result.Source == limiter.SourcePolicy
		if unknown || p.result.Source != limiter.SourcePolicy && p.result.Remaining < d.result.Remaining {
			d.result = p.result
		}
	}
	return nil
}

// addFields adds what d says to the metadata of a response.
func (d *decision) addFields(md metadata.MD) {
	for _, p := range d.parts {
		policy, quota := handler.FieldItems(p.rule.limiter, p.result)
		add(md, policyField, policy)
		if quota != "" {
			add(md, quotaField, quota)
		}
	}
}

// add appends an item to a list in one line, as package handler does.
func add(md metadata.MD, name, item string) {
	if lines := md[name]; len(lines) > 0 {
		lines[0] += ", " + item
		return
	}
	md[name] = []string{item}
}

// violated returns the names of the limiters that had no room.
func (d *decision) violated() (names []string) {
	for _, p := range d.parts {
		if p.result.Source != 0 && !p.result.Allowed {
			names = append(names, p.rule.limiter.Name())
		}
	}
	return names
}

type resultKey struct{}

// decided is what withResult keeps.
type decided struct {
	result limiter.Result
	known  bool // false if there is no decision; it then hides that of an outer interceptor
}

func withResult(ctx context.Context, res limiter.Result, known bool) context.Context {
	return context.WithValue(ctx, resultKey{}, decided{res, known})
}

// ResultFromContext returns the decision on a call, from the context that the server's method gets.
// It reports false if the call was skipped, or if a dry run could not decide. If FailOpen let the
// call pass, the Source is [limiter.SourcePolicy]. With [NewAll] it is the decision as a whole. In a
// chain of interceptors it is that of the last one.
func ResultFromContext(ctx context.Context) (limiter.Result, bool) {
	d, _ := ctx.Value(resultKey{}).(decided)
	return d.result, d.known
}
