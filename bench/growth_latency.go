package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// slower is how many times as long the median decision may take in the large table.
const slower = 1.3

// sized is a table of so many rows with a number of callers, and what was measured of it.
type sized struct {
	*bucketTable
	series
	rows, callers int
	wal           int64 // bytes
}

// measureLatency compares decisions in a small and a large table, in turns.
func measureLatency(ctx context.Context, b *backends) section {
	s := section{
		title:   "A decision in a large table",
		about:   fmt.Sprintf("Existing keys, drawn at random, all equally likely. Each case runs %d × %v, in turns. p50 and p99 are over all rounds.", b.rounds, b.length),
		columns: append(append([]string{"rows", "callers"}, cellTitles...), "WAL a decision"), text: 1,
	}
	sizes, callers := []int{b.rows() / 1000, b.rows()}, []int{1, 64}
	cases := make(map[int][]*sized) // by number of callers
	for _, rows := range sizes {
		b.progress("latency: filling %s rows", stats.Thousands(float64(rows)))
		t := b.filledTable(ctx, "latency_"+strconv.Itoa(rows), b.pool, rows, 1)
		for _, n := range callers {
			cases[n] = append(cases[n], &sized{bucketTable: t, rows: rows, callers: n})
		}
	}
	for round := range b.rounds {
		for _, n := range callers {
			for i := range cases[n] {
				cases[n][(i+round)%len(sizes)].measure(ctx)
			}
		}
		b.progress("latency: round %d of %d", round+1, b.rounds)
	}
	for _, n := range callers {
		for _, c := range cases[n] {
			all := c.total().Requests
			all += all / load.Warmth // the warm-up also wrote
			s.row(append(append([]string{stats.Thousands(float64(c.rows)), strconv.Itoa(n)}, c.cells()...), bytesText(c.wal/int64(all)))...)
		}
		ratio := cases[n][1].ratio(&cases[n][0].series, median)
		text := ratio.Text(stats.TwoDigits)
		if n == 1 {
			s.aim(ratio.Median <= slower, text, "1 caller: p50 in the large table ÷ in the small one, median of the rounds, at most %v", slower)
		} else {
			s.about += fmt.Sprintf(" %d callers: p50 in the large table ÷ in the small one is %s.", n, text)
		}
	}
	for _, c := range cases[1] {
		c.drop(ctx)
	}
	return s
}

func (c *sized) measure(ctx context.Context) {
	c.wal += c.pg.wal(ctx, func() { c.add(try(c.uniform(c.rows, 1).Run(ctx, c.callers, c.warm(), c.length)), nil) })
}

const (
	// outdated is how many times as long the median decision may take by a plan of a tiny table.
	outdated = 1.3
	// tiny is a number of rows that a page has room for.
	tiny = 50
	// planners is how many connections keep plans: as many as carry out merged statements.
	planners = 2
)

// measurePlan has sessions keep the plans of a table of few rows, grows it, and compares them with new
// sessions. Autovacuum is off: the plans are made anew when it comes by, a minute later at the soonest.
func measurePlan(ctx context.Context, b *backends) section {
	rows := b.rows() / 100
	s := section{
		title: "A plan made when the table was tiny",
		about: fmt.Sprintf("Old sessions made their plans while the table was tiny. Then it grows to %s rows, before autovacuum runs. "+
			"Old and new sessions run %d × %v a case, in turns.", stats.Thousands(float64(rows)), b.rounds, b.length),
		columns: append([]string{"callers", "sessions"}, cellTitles...), text: 1,
	}
	for _, callers := range []int{1, 64} {
		measured := b.plans(ctx, rows, callers)
		for i, sessions := range []string{"old", "new"} {
			s.row(append([]string{strconv.Itoa(callers), sessions}, measured[i].cells()...)...)
		}
		ratio := measured[0].ratio(&measured[1], median)
		s.aim(ratio.Median <= outdated, ratio.Text(stats.TwoDigits),
			"%s: p50 of old sessions ÷ of new ones, median of the rounds, at most %v", stats.Callers(callers), outdated)
	}
	return s
}

func (b *backends) plans(ctx context.Context, rows, callers int) (measured [2]series) {
	t := b.filledTable(ctx, "plan_"+strconv.Itoa(callers), planners, tiny, 1)
	t.exec(ctx, "ALTER TABLE %s SET (autovacuum_enabled = off)")
	orNone(t.uniform(tiny, 1).Run(ctx, callers, 0, b.warm()))
	t.exec(ctx, "DELETE FROM %s")
	t.fill(ctx, rows, 1)
	old := *t
	t.connect(ctx, planners)
	sessions := []*bucketTable{&old, t}
	for round := range b.rounds {
		for i := range sessions {
			i = (i + round) % len(sessions)
			measured[i].add(orNone(sessions[i].uniform(rows, 1).Run(ctx, callers, b.warm(), b.length)), nil)
		}
		b.progress("plan: %s: round %d of %d", stats.Callers(callers), round+1, b.rounds)
	}
	old.pool.Close()
	t.drop(ctx)
	return measured
}
