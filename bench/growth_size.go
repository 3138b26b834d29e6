package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

const (
	samples = 10
	// growth is how much larger table and index may be after all takes than after half of them, in percent.
	growth = 5
)

func measureSize(ctx context.Context, b *backends) section {
	const callers = 256
	keys := b.rows() / 100
	s := section{
		title:   "Bytes over many takes",
		about:   fmt.Sprintf("%d callers draw from %s keys at random. The table is empty at first.", callers, stats.Thousands(float64(keys))),
		columns: []string{"takes", "takes/s", "table", "index", "HOT of these", "dead rows", "autovacuums"}, text: 1,
	}
	t := b.newTable(ctx, "size", b.pool)
	var total uint64
	var before counters
	var sizes [samples]int64
	for i := range sizes {
		m := runUntil(ctx, t.uniform(keys, 1), callers, b.rows()/samples)
		total += m.Requests
		c := t.counters(ctx)
		s.row(stats.Thousands(float64(total)), stats.Thousands(m.Rate), bytesText(c.table), bytesText(c.primaryKey),
			c.hotShare(before), stats.Thousands(float64(c.dead)), fmt.Sprint(c.vacuums))
		before, sizes[i] = c, c.table+c.primaryKey
		b.progress("size: %d of %d", i+1, samples)
	}
	half, all := sizes[samples/2-1], sizes[samples-1]
	s.aim(100*all <= (100+growth)*half, fmt.Sprintf("%s, %s", bytesText(half), bytesText(all)),
		"table and index after all takes are at most %d %% larger than after half of them", growth)
	t.drop(ctx)
	return s
}

// runUntil lets callers ask until so many requests are answered, however long they take.
func runUntil(ctx context.Context, l load.Load, callers, requests int) load.Measurement {
	done := make(chan struct{})
	var asked atomic.Int64
	ask := l.Ask
	l.Ask = func(ctx context.Context, turn int) error {
		err := ask(ctx, turn)
		if asked.Add(1) == int64(requests) {
			close(done)
		}
		return err
	}
	return try(l.While(ctx, callers, 0, func(ctx context.Context) error {
		select {
		case <-done:
		case <-ctx.Done():
		}
		return nil
	}))
}

// hotShare is how many of the updates have to be HOT, in percent.
const hotShare = 95

// hotLoad is a load of one number of callers on a table of its own.
type hotLoad struct {
	*bucketTable
	load      load.Load
	about     string
	callers   int
	before    counters
	decisions uint64
}

// measureHOT counts how many updates touch no index under steady load.
func measureHOT(ctx context.Context, b *backends) section {
	keys := b.rows() / 100
	s := section{
		title: "HOT updates",
		about: fmt.Sprintf("%s existing keys. Each load has its own table and runs %d × %v, in turns. The counts are from pg_stat_user_tables. "+
			"A statement updates a row once, no matter how many takes of its key it carries.", stats.Thousands(float64(keys)), b.rounds, b.length),
		columns: []string{"load", "decisions", "updates", "HOT", "table before", "table after", "autovacuums"}, text: 1,
	}
	var loads []*hotLoad
	for i, about := range []string{"all keys equally likely", "one key", "Zipf (s = 1.1)"} {
		for _, callers := range []int{64, 256} {
			t := b.filledTable(ctx, fmt.Sprintf("hot_%d_%d", i, callers), b.pool, keys, 1)
			asked := []load.Load{t.uniform(keys, 1), t.uniform(1, 1), t.zipf(keys)}
			loads = append(loads, &hotLoad{t, asked[i], fmt.Sprintf("%d callers, %s", callers, about), callers, t.counters(ctx), 0})
		}
	}
	for round := range b.rounds {
		for _, l := range loads {
			l.decisions += try(l.load.Run(ctx, l.callers, 0, b.length)).Requests
		}
		b.progress("hot: round %d of %d", round+1, b.rounds)
	}
	for _, l := range loads {
		before, after := l.before, l.counters(ctx)
		share := after.hotShare(before)
		s.row(l.about, stats.Thousands(float64(l.decisions)), stats.Thousands(float64(after.updates-before.updates)), share,
			bytesText(before.table), bytesText(after.table), strconv.FormatInt(after.vacuums-before.vacuums, 10))
		s.aim(100*(after.hot-before.hot) >= hotShare*(after.updates-before.updates), share, "%s: at least %d %% of the updates are HOT", l.about, hotShare)
		l.drop(ctx)
	}
	return s
}

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
