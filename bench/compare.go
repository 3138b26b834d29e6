package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// compareContenders measures all contenders in all scenarios, and draws plots.
func compareContenders(ctx context.Context, b *backends) ([]section, error) {
	groups := b.plan()
	if len(groups) == 0 {
		return nil, nil
	}
	r := &runner{b, make(map[string]decider), make(map[string][]string)}
	err := errors.Join(r.measure(ctx, groups), r.close())
	if ctx.Err() != nil {
		return nil, err
	}
	return append(tables(groups), ratios(groups)...), errors.Join(err, plot(b.out, groups))
}

type runner struct {
	*backends
	open  map[string]decider // by scenario and contender
	order map[string][]string
}

// measure runs all groups in each round. The cases of a group come in another order in each round,
// the same in every run: what one leaves behind, such as work for PostgreSQL's vacuum, meets each of
// the others. A case that fails does not stop them, but is not run again.
func (r *runner) measure(ctx context.Context, groups []group) error {
	var errs []error
	for round := range r.rounds {
		for _, g := range groups {
			for _, i := range rand.New(rand.NewPCG(uint64(round), uint64(len(g)))).Perm(len(g)) {
				c := g[i]
				if c.err != nil {
					continue
				}
				m, err := r.one(ctx, c)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				name := fmt.Sprintf("%s with %d callers, %s", c.scenario.name, c.callers, c.contender.name)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
				}
				c.add(m, err)
				r.progress("round %d of %d, %s: %s/s", round+1, r.rounds, name, stats.Thousands(m.Rate))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *runner) one(ctx context.Context, c testCase) (load.Measurement, error) {
	d, err := r.decider(ctx, c)
	if err != nil {
		return load.Measurement{}, err
	}
	callers := c.callers
	if c.contender.rows > 0 {
		callers = batchers
	}
	return d.load(c.scenario.wants(), c.contender.sample, c.contender.rows, r.order[c.scenario.name]).Run(ctx, callers, r.warm(), r.length)
}

// decider returns the contender of c. The first call opens it, and asks for every key once.
func (r *runner) decider(ctx context.Context, c testCase) (decider, error) {
	names := c.scenario.keyNames(r.prefix + ":")
	if r.order[c.scenario.name] == nil {
		r.order[c.scenario.name] = c.scenario.order(names)
	}
	opened := c.scenario.policy.name + "/" + c.contender.name
	d, ok := r.open[opened]
	if !ok {
		err := r.start(ctx, c.contender.backend)
		if err != nil {
			return decider{}, err
		}
		if d, err = c.contender.open(ctx, r.backends, c.scenario.policy); err != nil {
			return decider{}, err
		}
		r.open[opened] = d
	}
	filled := c.scenario.name + "/" + c.contender.name
	if _, ok := r.open[filled]; !ok {
		if err := d.fill(ctx, names, c.contender.rows); err != nil {
			return decider{}, fmt.Errorf("fill: %w", err)
		}
		d.close = nil // of the other entry
		r.open[filled] = d
	}
	return d, nil
}

func (r *runner) close() error {
	var errs []error
	for _, d := range r.open {
		if d.close != nil {
			errs = append(errs, d.close())
		}
	}
	return errors.Join(errs...)
}

// load has callers ask for the keys in their order, and checks each decision.
func (d decider) load(wants bool, sample, rows int, order []string) load.Load {
	ask := func(ctx context.Context, turn int) error { return d.expect(ctx, order[turn&(len(order)-1)], wants) }
	if rows > 0 {
		ask = func(ctx context.Context, turn int) error {
			from := turn * rows & (len(order) - 1)
			return d.expectRows(ctx, order[from:from+rows], wants)
		}
	}
	return load.Load{Ask: ask, Requests: rows, Sample: sample}
}

// fill asks for every key once, so that all of them are there, and those that let one request pass
// have nothing left. All of these requests must pass.
func (d decider) fill(ctx context.Context, names []string, rows int) error {
	if rows == 0 {
		return load.Each(len(names), func(i int) error { return d.expect(ctx, names[i], true) })
	}
	for chunk := range slices.Chunk(names, rows) {
		if err := d.expectRows(ctx, chunk, true); err != nil {
			return err
		}
	}
	return nil
}

// expect asks for one request, and fails if the decision is not the one wanted.
func (d decider) expect(ctx context.Context, key string, wants bool) error {
	allowed, err := d.allow(ctx, key)
	if err == nil && allowed != wants {
		err = fmt.Errorf("%q: allowed is %t, want %t", key, allowed, wants)
	}
	return err
}

// expectRows asks for a request for each key, and fails unless all or none of them pass, as is wanted.
func (d decider) expectRows(ctx context.Context, keys []string, wants bool) error {
	granted, err := d.batch(ctx, keys)
	want := 0
	if wants {
		want = len(keys)
	}
	if err == nil && granted != want {
		err = fmt.Errorf("%d of %d rows were granted, want %d", granted, len(keys), want)
	}
	return err
}

func tables(groups []group) (list []section) {
	for _, sc := range scenarios {
		s := section{title: sc.name + ": " + sc.about, columns: append([]string{"limiter", "state is in", "callers"}, cellTitles...), text: 2}
		for _, contender := range contenders {
			for _, c := range casesOf(groups, sc, contender.name) {
				callers := strconv.Itoa(c.callers)
				if contender.rows > 0 {
					callers = fmt.Sprintf("%d × %d rows", batchers, contender.rows)
				}
				cells := []string{"failed", "", "", ""}
				if c.measured() {
					cells = c.cells()
				}
				s.rows = append(s.rows, append([]string{contender.title, contender.backend, callers}, cells...))
			}
		}
		if len(s.rows) > 0 {
			list = append(list, s)
		}
	}
	return list
}

func casesOf(groups []group, sc scenario, contender string) (list []testCase) {
	for _, g := range groups {
		for _, c := range g {
			if c.scenario.name == sc.name && c.contender.name == contender {
				list = append(list, c)
			}
		}
	}
	return list
}

// comparison is a ratio that says something: of the decisions a second of two contenders.
type comparison struct{ ours, peer, title string }

var comparisons = []comparison{
	{"ours-postgres", "upsert-postgres", "PostgreSQL ÷ UPSERT by hand"},
	{"ours-postgres-async", "upsert-postgres", "PostgreSQL, async commit ÷ UPSERT by hand"},
	{"ours-postgres", "select-postgres", "PostgreSQL ÷ SELECT by hand"},
	{"ours-postgres", "upsert-rows", "PostgreSQL ÷ UPSERT of 256 rows"},
	{"ours-all", "upsert-two", "AllowAll of two limits ÷ two UPSERTs by hand"},
	{"ours-postgres", "redis_rate", "PostgreSQL ÷ redis_rate"},
	{"ours-postgres", "rueidis", "PostgreSQL ÷ rueidis"},
	{"ours-borrow", "rueidis", "borrow ÷ rueidis"},
	{"ours-borrow", "ours-postgres", "borrow ÷ PostgreSQL"},
	{"ours-postgres-async", "redis_rate", "PostgreSQL, async commit ÷ redis_rate"},
	{"ours-sqlite", "upsert-sqlite", "SQLite ÷ UPSERT by hand"},
	{"ours-memory", "go-limiter", "memory ÷ go-limiter"},
	{"ours-memory", "throttled-memory", "memory ÷ throttled"},
	{"ours-memory", "x-time-rate", "memory ÷ x/time/rate in a map"},
}

func ratios(groups []group) []section {
	s := section{
		title: "Ratios", about: "The rate of limiter divided by the rate of another in the same round: median (lowest to highest).",
		columns: []string{"scenario", "callers"}, text: 1,
	}
	shown := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.callers() == 0 })
	for _, g := range shown {
		s.rows = append(s.rows, []string{g[0].scenario.name, strconv.Itoa(g.callers())})
	}
	for _, c := range comparisons {
		column := make([]string, len(shown))
		for i, g := range shown {
			column[i] = c.text(groups, g)
		}
		if strings.Join(column, "") == "" {
			continue
		}
		s.columns = append(s.columns, c.title)
		for i, text := range column {
			s.rows[i] = append(s.rows[i], text)
		}
	}
	if len(s.columns) == 2 {
		return nil
	}
	return []section{s}
}

// text returns a comparison in a group, or nothing if one of the two was not measured.
func (c comparison) text(groups []group, in group) string {
	var found [2]*series
	for i, name := range []string{c.ours, c.peer} {
		for _, other := range casesOf(groups, in[0].scenario, name) {
			// The ceiling is measured once a scenario, in the first of its groups.
			if (other.callers == in.callers() || other.contender.rows > 0) && other.measured() {
				found[i] = other.series
			}
		}
	}
	if found[0] == nil || found[1] == nil {
		return ""
	}
	return found[0].ratio(found[1], perSecond).Text(stats.TwoDigits)
}
