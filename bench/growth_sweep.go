package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

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

// measureSweep sweeps a table alone, then beside traffic on other keys of it.
func measureSweep(ctx context.Context, b *backends) section {
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
	for i, c := range []struct {
		about string
		rows  int
		every time.Duration
	}{
		{paced, b.rows() / 10, pace},
		{fmt.Sprintf("%d callers without a pause: saturated", callers), b.rows() / 10, 0},
		{paced, b.rows(), pace},
	} {
		t := b.filledTable(ctx, "sweep_"+strconv.Itoa(i), b.pool, c.rows, live)
		size := stats.Thousands(float64(c.rows))
		expired := c.rows - c.rows/live
		alone := expired / 5
		var took time.Duration
		wal := t.pg.wal(ctx, func() { took = try(t.sweep(ctx, alone)) }) / int64(alone)
		rate := float64(alone) / took.Seconds()
		b.progress("sweep: %s rows alone: %.0f rows/s, %d B of WAL a row", size, rate, wal)
		l := t.uniform(c.rows/live, live)
		l.Every = c.every
		each := (expired - alone) / b.rounds
		var without, beside series
		took = 0
		for round := range b.rounds {
			without.add(try(l.Run(ctx, callers, t.warm(), t.length)), nil)
			beside.add(try(l.While(ctx, callers, t.warm(), func(ctx context.Context) error {
				more, err := t.sweep(ctx, each)
				took += more
				return err
			})), nil)
			b.progress("sweep: %s rows: %s: round %d of %d", size, c.about, round+1, b.rounds)
		}
		t.drop(ctx)
		if c.every > 0 { // the other has the same table
			s.row("none", size, "yes", "-", "-", "-", "-", "-", stats.Thousands(rate), fmt.Sprintf("%d B", wal))
		}
		row := func(sweep string, all *series, speed string) {
			slowest := stats.Duration(stats.Quantile(all.total().Latencies, 0.999))
			s.row(append(append([]string{c.about, size, sweep}, all.cells()...), slowest, speed, "-")...)
		}
		row("no", &without, "-")
		row("yes", &beside, stats.Thousands(float64(each*b.rounds)/took.Seconds()))
		ratio := beside.ratio(&without, p99)
		s.aim(ratio.Median <= disturbed, ratio.Text(stats.TwoDigits),
			"%s rows, %s: p99 beside the sweep ÷ without it, median of the rounds, at most %d", size, c.about, disturbed)
		if c.rows == b.rows() {
			s.aim(rate >= sweptRate, stats.Thousands(rate), "%s rows, no traffic: at least %s rows swept a second", size, stats.Thousands(sweptRate))
			s.aim(wal <= sweptWAL, fmt.Sprintf("%d B", wal), "%s rows, no traffic: at most %d B of WAL a row", size, sweptWAL)
		}
	}
	return s
}

func (t *bucketTable) sweep(ctx context.Context, rows int) (time.Duration, error) {
	began := time.Now()
	removed, err := t.store.Sweep(ctx, int64(rows))
	if err == nil && removed != int64(rows) {
		err = fmt.Errorf("swept %d rows, want %d", removed, rows)
	}
	return time.Since(began), err
}
