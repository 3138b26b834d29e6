package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// runner measures cases in rounds.
type runner struct {
	backends *backends
	length   time.Duration
	rounds   int
	progress *progress

	open  map[string]decider // by scenario and contender
	order map[string][]string
}

// measure runs all groups in each round. The cases of a group come in another order in each round,
// the same in every run: what one leaves behind, such as work for PostgreSQL's vacuum, meets each of
// the others. A case that fails does not stop them, but is not run again.
func (r *runner) measure(ctx context.Context, groups []group) (*outcome, error) {
	r.open, r.order = make(map[string]decider), make(map[string][]string)
	out := newOutcome(groups)
	var errs []error
	for round := range r.rounds {
		for _, g := range groups {
			for _, i := range rand.New(rand.NewPCG(uint64(round), uint64(len(g)))).Perm(len(g)) {
				c := g[i]
				if out.of(c).err != nil {
					continue
				}
				m, err := r.one(ctx, c)
				if ctx.Err() != nil {
					return out, errors.Join(context.Cause(ctx), r.close())
				}
				if err != nil {
					err = fmt.Errorf("%s with %d callers, %s: %w", c.scenario.name, c.callers, c.contender.name, err)
					errs = append(errs, err)
				}
				out.of(c).add(round, m, err)
				r.progress.end(round, c, m, err)
			}
		}
	}
	return out, errors.Join(append(errs, r.close())...)
}

// one measures a case in one round.
func (r *runner) one(ctx context.Context, c testCase) (load.Measurement, error) {
	d, err := r.decider(ctx, c)
	if err != nil {
		return load.Measurement{}, err
	}
	l := loadOf(d, c.scenario.wants(), c.contender.sample, c.contender.rows, r.order[c.scenario.name])
	callers := c.callers
	if c.contender.rows > 0 {
		callers = batchers
	}
	return l.Run(ctx, callers, r.length/load.Warmth, r.length)
}

// decider returns the contender of c, which it opens and fills when it is first asked for.
func (r *runner) decider(ctx context.Context, c testCase) (decider, error) {
	names := c.scenario.keyNames(r.backends.prefix + ":")
	if r.order[c.scenario.name] == nil {
		r.order[c.scenario.name] = c.scenario.order(names)
	}
	opened := c.scenario.policy.name + "/" + c.contender.name
	d, ok := r.open[opened]
	if !ok {
		var err error
		if d, err = c.contender.open(ctx, r.backends, c.scenario.policy); err != nil {
			return decider{}, err
		}
		r.open[opened] = d
	}
	filled := c.scenario.name + "/" + c.contender.name
	if _, ok := r.open[filled]; !ok {
		if err := fill(ctx, d, names, c.contender.rows); err != nil {
			return decider{}, fmt.Errorf("fill: %w", err)
		}
		d.close = nil // of the other entry
		r.open[filled] = d
	}
	return d, nil
}

// close closes what decider opened.
func (r *runner) close() error {
	var errs []error
	for _, d := range r.open {
		if d.close != nil {
			errs = append(errs, d.close())
		}
	}
	return errors.Join(errs...)
}
