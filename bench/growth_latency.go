package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

// slower is how many times as long the median decision may take in the large table.
const slower = 1.3

// sized is a table of so many rows, and what was measured of it: by number of callers, in each round.
type sized struct {
	*bucketTable
	rows     int
	measured map[int]*series
	wal      map[int]int64 // bytes, by number of callers
}

// measureLatency compares decisions in a small and a large table, in turns.
func measureLatency(ctx context.Context, b *backends) (section, error) {
	s := section{
		title:   "A decision in a large table",
		about:   fmt.Sprintf("Existing keys, drawn at random, all equally likely. Each case runs %d × %v, in turns. p50 and p99 are over all rounds.", b.rounds, b.length),
		columns: append(append([]string{"rows", "callers"}, cellTitles...), "WAL a decision"), text: 1,
	}
	var tables []*sized
	for _, rows := range []int{b.rows / 1000, b.rows} {
		b.progress("latency: filling %s rows", stats.Thousands(float64(rows)))
		t, err := b.filledTable(ctx, "latency_"+strconv.Itoa(rows), b.pool, rows, 1)
		if err != nil {
			return s, err
		}
		tables = append(tables, &sized{t, rows, map[int]*series{1: {}, 64: {}}, make(map[int]int64)})
	}
	callers := []int{1, 64}
	for round := range b.rounds {
		for _, n := range callers {
			for i := range tables {
				if err := tables[(i+round)%len(tables)].measure(ctx, n); err != nil {
					return s, err
				}
			}
		}
		b.progress("latency: round %d of %d", round+1, b.rounds)
	}
	for _, n := range callers {
		for _, t := range tables {
			s.rows = append(s.rows, t.row(n))
		}
		ratio := tables[1].measured[n].ratio(tables[0].measured[n], median)
		if n == 1 {
			s.targets = append(s.targets, target{
				fmt.Sprintf("%s: p50 in the large table ÷ in the small one, median of the rounds, at most %s", stats.Callers(n), stats.TwoDigits(slower)),
				ratio.Text(stats.TwoDigits), ratio.Median <= slower,
			})
			continue
		}
		s.about += fmt.Sprintf(" %s: p50 in the large table ÷ in the small one is %s.", stats.Callers(n), ratio.Text(stats.TwoDigits))
	}
	for _, t := range tables {
		if err := t.drop(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (t *sized) measure(ctx context.Context, callers int) error {
	var m load.Measurement
	wal, err := t.pg.wal(ctx, func() (err error) {
		m, err = t.uniform(t.rows, 1).Run(ctx, callers, t.warm(), t.length)
		return err
	})
	t.wal[callers] += wal
	t.measured[callers].add(m, err)
	return err
}

func (t *sized) row(callers int) []string {
	all := t.measured[callers].total()
	// The warm-up also wrote.
	decisions := all.Requests + all.Requests/load.Warmth
	return append([]string{stats.Thousands(float64(t.rows)), strconv.Itoa(callers)},
		append(t.measured[callers].cells(), bytesText(t.wal[callers]/int64(decisions)))...)
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
func measurePlan(ctx context.Context, b *backends) (section, error) {
	rows := b.rows / 100
	s := section{
		title: "A plan made when the table was tiny",
		about: fmt.Sprintf("Old sessions made their plans while the table was tiny. Then it grows to %s rows, before autovacuum runs. "+
			"Old and new sessions run %d × %v a case, in turns.", stats.Thousands(float64(rows)), b.rounds, b.length),
		columns: append([]string{"callers", "sessions"}, cellTitles...), text: 1,
	}
	for _, callers := range []int{1, 64} {
		measured, err := b.plans(ctx, rows, callers)
		if err != nil {
			return s, err
		}
		for i, sessions := range []string{"old", "new"} {
			s.rows = append(s.rows, append([]string{strconv.Itoa(callers), sessions}, measured[i].cells()...))
		}
		ratio := measured[0].ratio(&measured[1], median)
		s.targets = append(s.targets, target{
			fmt.Sprintf("%s: p50 of old sessions ÷ of new ones, median of the rounds, at most %s", stats.Callers(callers), stats.TwoDigits(outdated)),
			ratio.Text(stats.TwoDigits), ratio.Median <= outdated,
		})
	}
	return s, nil
}

func (b *backends) plans(ctx context.Context, rows, callers int) (measured [2]series, err error) {
	t, err := b.filledTable(ctx, "plan_"+strconv.Itoa(callers), planners, tiny, 1)
	if err != nil {
		return measured, err
	}
	if err := t.exec(ctx, "ALTER TABLE %s SET (autovacuum_enabled = off)"); err != nil {
		return measured, err
	}
	if _, err := t.uniform(tiny, 1).Run(ctx, callers, 0, b.warm()); err != nil {
		return measured, err
	}
	if err := t.exec(ctx, "DELETE FROM %s"); err != nil {
		return measured, err
	}
	if err := t.fill(ctx, rows, 1); err != nil {
		return measured, err
	}
	old := *t
	if err := t.connect(ctx, planners); err != nil {
		return measured, err
	}
	sessions := []*bucketTable{&old, t}
	for round := range b.rounds {
		for i := range sessions {
			i = (i + round) % len(sessions)
			m, err := sessions[i].uniform(rows, 1).Run(ctx, callers, b.warm(), b.length)
			if err != nil && !errors.Is(err, load.ErrNone) { // what was under way tells enough
				return measured, err
			}
			measured[i].add(m, nil)
		}
		b.progress("plan: %s: round %d of %d", stats.Callers(callers), round+1, b.rounds)
	}
	old.pool.Close()
	return measured, t.drop(ctx)
}
