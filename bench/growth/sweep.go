package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

const (
	// disturbed is how many times as long p99 may be beside a sweep.
	disturbed = 2
	// live is that one in so many rows is used, and the others are swept: they stand on the same pages.
	live = 11
	// pace is the time from one request of a caller to the next, where callers have one: far from what
	// saturates two cores.
	pace = 40 * time.Millisecond
)

// swept is traffic without a sweep and beside it.
type swept struct {
	about          string
	every          time.Duration
	without, while []load.Measurement
	took           time.Duration
}

// measureSweep sweeps beside traffic on other keys of the same table.
func measureSweep(ctx context.Context, b *bench) (section, error) {
	const callers = 64
	expired := b.rows / 10 / b.rounds / (live - 1) * (live - 1) * b.rounds
	keys := expired / (live - 1)
	s := section{
		title: "A sweep beside traffic",
		about: fmt.Sprintf("%d sweeps delete %s expired rows in all, in turns with %v without a sweep. Meanwhile %d callers take from %s other rows, "+
			"which are one in %d of the rows on every page. At a steady pace, the time of a request counts from the moment at which it is due.",
			b.rounds, stats.Thousands(float64(expired)), b.length, callers, stats.Thousands(float64(keys)), live),
		columns: []string{"traffic", "sweep", "decisions/s", "lowest to highest", "p50", "p99", "p99.9", "swept/s"},
	}
	for i, c := range []*swept{
		{about: fmt.Sprintf("%d callers, one request each every %v", callers, pace), every: pace},
		{about: fmt.Sprintf("%d callers without a pause: saturated", callers)},
	} {
		t, err := b.filledTable(ctx, "sweep_"+strconv.Itoa(i), b.pool, keys*live, live)
		if err != nil {
			return s, err
		}
		l := t.uniform(keys, live)
		l.Every = c.every
		for round := range b.rounds {
			if err := c.measure(ctx, t, l, callers, expired/b.rounds); err != nil {
				return s, err
			}
			b.progress("sweep: %s: round %d of %d", c.about, round+1, b.rounds)
		}
		s.rows = append(s.rows, c.row("no", c.without, "-"),
			c.row("yes", c.while, stats.Thousands(float64(expired)/c.took.Seconds())))
		ratio := compare(c.while, c.without, p99)
		s.targets = append(s.targets, target{
			fmt.Sprintf("%s: p99 beside the sweep ÷ without it, median of the rounds, at most %d", c.about, disturbed),
			ratio.Text(stats.TwoDigits), ratio.Median <= disturbed,
		})
		if err := t.drop(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// measure adds a round.
func (c *swept) measure(ctx context.Context, t *table, l load.Load, callers, rows int) error {
	without, err := l.Run(ctx, callers, t.bench.length/load.Warmth, t.bench.length)
	if err != nil {
		return err
	}
	while, err := l.While(ctx, callers, t.bench.length/load.Warmth, func(ctx context.Context) error {
		began := time.Now()
		removed, err := t.store.Sweep(ctx, rows)
		c.took += time.Since(began)
		if err == nil && removed != int64(rows) {
			err = fmt.Errorf("swept %d rows, want %d", removed, rows)
		}
		return err
	})
	c.without, c.while = append(c.without, without), append(c.while, while)
	return err
}

func (c *swept) row(sweep string, rounds []load.Measurement, speed string) []string {
	all := summarize(rounds)
	return append(append([]string{c.about, sweep}, all.cells()...), stats.Duration(all.Latencies.Quantile(0.999)), speed)
}
