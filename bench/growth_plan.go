package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

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
