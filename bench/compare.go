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
	r := &runner{b, make(map[string]decider), make(map[string][]string), make(map[string]bool)}
	err := r.measure(ctx, groups)
	if ctx.Err() != nil {
		return nil, err
	}
	plot(b.out, groups)
	return append(tables(groups), ratios(groups)...), err
}

type runner struct {
	*backends
	open   map[string]decider  // by policy and contender
	order  map[string][]string // of keys, by scenario
	filled map[string]bool     // by scenario and contender
}

// measure runs all groups in each round. The cases of a group come in another order in each round,
// the same in every run: what one leaves behind, such as work for PostgreSQL's vacuum, meets each of
// the others. A case that fails does not stop them, but is not run again.
func (r *runner) measure(ctx context.Context, groups []group) error {
	var errs []error
	for round := range r.rounds {
		for _, g := range groups {
			for _, i := range rand.New(rand.NewPCG(uint64(round), uint64(len(g.cases)))).Perm(len(g.cases)) {
				c := g.cases[i]
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

// one measures a case. The first time, it opens the contender and asks for every key once, so that all of them are
// there, and those that let one request pass have nothing left.
func (r *runner) one(ctx context.Context, c testCase) (m load.Measurement, err error) {
	defer catch(&err)
	sc, rows := c.scenario, max(1, c.contender.rows)
	opened, filled := sc.policy.name+"/"+c.contender.name, sc.name+"/"+c.contender.name
	if r.open[opened] == nil {
		r.start(ctx, c.contender.backend)
		r.open[opened] = c.contender.open(ctx, r.backends, sc.policy)
	}
	if !r.filled[filled] {
		names := sc.keyNames(r.prefix + ":")
		must(r.open[opened].fill(ctx, slices.Collect(slices.Chunk(names, rows))))
		r.filled[filled] = true
		if r.order[sc.name] == nil {
			r.order[sc.name] = order(names, sc.zipf)
		}
	}
	return r.open[opened].load(r.order[sc.name], sc.wants(), rows, c.contender.sample).Run(ctx, c.callers, r.warm(), r.length)
}

// fill asks for every key once. All of these requests must pass.
func (d decider) fill(ctx context.Context, chunks [][]string) error {
	return load.Each(len(chunks), func(i int) error { return d.expect(ctx, chunks[i], true) })
}

// load has callers ask for the keys in their order, and checks each decision.
func (d decider) load(order []string, wants bool, rows, sample int) load.Load {
	return load.Load{Requests: rows, Sample: sample, Ask: func(ctx context.Context, turn int) error {
		from := turn * rows & (len(order) - 1)
		return d.expect(ctx, order[from:from+rows], wants)
	}}
}

// expect asks for a request for each key, and fails unless all or none of them pass, as is wanted.
func (d decider) expect(ctx context.Context, keys []string, wants bool) error {
	granted, err := d(ctx, keys)
	want := 0
	if wants {
		want = len(keys)
	}
	if err == nil && granted != want {
		err = fmt.Errorf("%d of %d requests passed, want %d; the first key is %q", granted, len(keys), want, keys[0])
	}
	return err
}

func tables(groups []group) (list []section) {
	for _, sc := range scenarios {
		s := section{title: sc.name + ": " + sc.about, columns: append([]string{"limiter", "state is in", "callers"}, cellTitles...), text: 2}
		for _, contender := range contenders {
			for _, c := range casesOf(groups, sc, contender.name) {
				callers, cells := strconv.Itoa(c.callers), []string{"failed", "", "", ""}
				if contender.rows > 0 {
					callers += fmt.Sprintf(" × %d rows", contender.rows)
				}
				if c.measured() {
					cells = c.cells()
				}
				s.row(append([]string{contender.title, contender.backend, callers}, cells...)...)
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
		for _, c := range g.cases {
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
	for _, g := range groups {
		s.row(g.scenario.name, strconv.Itoa(g.callers))
	}
	for _, c := range comparisons {
		var column []string
		for _, g := range groups {
			column = append(column, c.text(groups, g))
		}
		if strings.Join(column, "") != "" {
			s.columns = append(s.columns, c.title)
			for i, text := range column {
				s.rows[i] = append(s.rows[i], text)
			}
		}
	}
	if len(s.columns) == 2 {
		return nil
	}
	return []section{s}
}

// text returns a comparison in a group, or nothing if one of the two was not measured.
func (c comparison) text(groups []group, in group) string {
	find := func(name string) *series {
		for _, c := range casesOf(groups, in.scenario, name) {
			// The ceiling is measured once a scenario, in the first of its groups.
			if (c.callers == in.callers || c.contender.rows > 0) && c.measured() {
				return c.series
			}
		}
		return nil
	}
	ours, peer := find(c.ours), find(c.peer)
	if ours == nil || peer == nil {
		return ""
	}
	return ours.ratio(peer, perSecond).Text(stats.TwoDigits)
}
