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
	// sweptRate is how many rows a second a sweep alone has to delete.
	sweptRate = 50_000
	// sweptWAL is how many bytes of WAL it may write for each.
	sweptWAL = 500
	// live is that one in so many rows is used, and the others are swept: they stand on the same pages.
	live = 2
	// pace is the time from one request of a caller to the next, where callers have one: far from what
	// saturates two cores.
	pace = 40 * time.Millisecond
)

type swept struct {
	about          string
	rows           int
	every          time.Duration
	without, while series
	took           time.Duration
}

// measureSweep sweeps a table alone, then beside traffic on other keys of it.
func measureSweep(ctx context.Context, b *backends) (section, error) {
	const callers = 64
	s := section{
		title: "Sweeps",
		about: fmt.Sprintf("The rows are in random order of their keys, and one in %d is used. A fifth of the other rows is swept alone. "+
			"%d sweeps delete the rest, in turns with %v without a sweep. Meanwhile %d callers take from the used rows. "+
			"At a steady pace, the time of a request counts from the moment at which it is due.",
			live, b.rounds, b.length, callers),
		columns: append(append([]string{"traffic", "rows", "sweep"}, cellTitles...), "p99.9", "swept/s", "WAL a row"), text: 1,
	}
	paced := fmt.Sprintf("%d callers, one request each every %v", callers, pace)
	for i, c := range []*swept{
		{about: paced, rows: b.rows / 10, every: pace},
		{about: fmt.Sprintf("%d callers without a pause: saturated", callers), rows: b.rows / 10},
		{about: paced, rows: b.rows, every: pace},
	} {
		t, err := b.filledTable(ctx, "sweep_"+strconv.Itoa(i), b.pool, c.rows, live)
		if err != nil {
			return s, err
		}
		size := stats.Thousands(float64(c.rows))
		expired := c.rows - c.rows/live
		alone := expired / 5
		rate, wal, err := t.sweepAlone(ctx, alone)
		if err != nil {
			return s, err
		}
		b.progress("sweep: %s rows alone: %.0f rows/s, %.0f B of WAL a row", size, rate, wal)
		l := t.uniform(c.rows/live, live)
		l.Every = c.every
		each := (expired - alone) / b.rounds
		for round := range b.rounds {
			if err := c.measure(ctx, t, l, callers, each); err != nil {
				return s, err
			}
			b.progress("sweep: %s rows: %s: round %d of %d", size, c.about, round+1, b.rounds)
		}
		if c.every > 0 { // the other has the same table
			s.rows = append(s.rows, []string{"none", size, "yes", "-", "-", "-", "-", "-", stats.Thousands(rate), fmt.Sprintf("%.0f B", wal)})
		}
		s.rows = append(s.rows, c.row("no", &c.without, "-"),
			c.row("yes", &c.while, stats.Thousands(float64(each*b.rounds)/c.took.Seconds())))
		ratio := c.while.ratio(&c.without, p99)
		s.targets = append(s.targets, target{
			fmt.Sprintf("%s rows, %s: p99 beside the sweep ÷ without it, median of the rounds, at most %d", size, c.about, disturbed),
			ratio.Text(stats.TwoDigits), ratio.Median <= disturbed,
		})
		if c.rows == b.rows {
			s.targets = append(s.targets,
				target{
					fmt.Sprintf("%s rows, no traffic: at least %s rows swept a second", size, stats.Thousands(sweptRate)),
					stats.Thousands(rate), rate >= sweptRate,
				},
				target{
					fmt.Sprintf("%s rows, no traffic: at most %d B of WAL a row", size, sweptWAL),
					fmt.Sprintf("%.0f B", wal), wal <= sweptWAL,
				})
		}
		if err := t.drop(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// sweepAlone deletes rows, and returns how many a second and how many bytes of WAL each wrote.
func (t *bucketTable) sweepAlone(ctx context.Context, rows int) (rate, wal float64, err error) {
	var took time.Duration
	bytes, err := t.pg.wal(ctx, func() (err error) {
		took, err = t.sweep(ctx, rows)
		return err
	})
	return float64(rows) / took.Seconds(), float64(bytes) / float64(rows), err
}

func (t *bucketTable) sweep(ctx context.Context, rows int) (time.Duration, error) {
	began := time.Now()
	removed, err := t.store.Sweep(ctx, int64(rows))
	if err == nil && removed != int64(rows) {
		err = fmt.Errorf("swept %d rows, want %d", removed, rows)
	}
	return time.Since(began), err
}

func (c *swept) measure(ctx context.Context, t *bucketTable, l load.Load, callers, rows int) error {
	without, err := l.Run(ctx, callers, t.warm(), t.length)
	if err != nil {
		return err
	}
	while, err := l.While(ctx, callers, t.warm(), func(ctx context.Context) error {
		took, err := t.sweep(ctx, rows)
		c.took += took
		return err
	})
	c.without.add(without, nil)
	c.while.add(while, err)
	return err
}

func (c *swept) row(sweep string, all *series, speed string) []string {
	sum := all.total()
	cells := append([]string{c.about, stats.Thousands(float64(c.rows)), sweep}, all.cells()...)
	return append(cells, stats.Duration(stats.Quantile(sum.Latencies, 0.999)), speed, "-")
}
