package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

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
