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

func measureSize(ctx context.Context, b *backends) (section, error) {
	const callers = 256
	keys := b.rows / 100
	s := section{
		title:   "Bytes over many takes",
		about:   fmt.Sprintf("%d callers draw from %s keys at random. The table is empty at first.", callers, stats.Thousands(float64(keys))),
		columns: []string{"takes", "takes/s", "table", "index", "HOT of these", "dead rows", "autovacuums"}, text: 1,
	}
	t, err := b.newTable(ctx, "size", b.pool)
	if err != nil {
		return s, err
	}
	var total uint64
	var before counters
	var sizes []int64
	for i := range samples {
		m, err := runUntil(ctx, t.uniform(keys, 1), callers, b.rows/samples)
		if err != nil {
			return s, err
		}
		total += m.Requests
		c, err := t.counters(ctx)
		if err != nil {
			return s, err
		}
		s.rows = append(s.rows, []string{
			stats.Thousands(float64(total)), stats.Thousands(m.Rate), bytesText(c.table), bytesText(c.primaryKey),
			c.hotShare(before), stats.Thousands(float64(c.dead)), strconv.FormatInt(c.vacuums, 10),
		})
		before, sizes = c, append(sizes, c.table+c.primaryKey)
		b.progress("size: %d of %d", i+1, samples)
	}
	half, all := sizes[samples/2-1], sizes[samples-1]
	s.targets = []target{{
		fmt.Sprintf("table and index after all takes are at most %d %% larger than after half of them", growth),
		fmt.Sprintf("%s, %s", bytesText(half), bytesText(all)), 100*all <= (100+growth)*half,
	}}
	return s, t.drop(ctx)
}

// runUntil lets callers ask until so many requests are answered, however long they take.
func runUntil(ctx context.Context, l load.Load, callers, requests int) (load.Measurement, error) {
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
	return l.While(ctx, callers, 0, func(ctx context.Context) error {
		select {
		case <-done:
		case <-ctx.Done():
		}
		return nil
	})
}

// hotShare is how many of the updates have to be HOT, in percent.
const hotShare = 95

// measureHOT counts how many updates touch no index under steady load.
func measureHOT(ctx context.Context, b *backends) (section, error) {
	keys := b.rows / 100
	s := section{
		title: "HOT updates",
		about: fmt.Sprintf("%s existing keys. Each load has its own table and runs %d × %v, in turns. The counts are from pg_stat_user_tables. "+
			"A statement updates a row once, no matter how many takes of its key it carries.", stats.Thousands(float64(keys)), b.rounds, b.length),
		columns: []string{"load", "decisions", "updates", "HOT", "table before", "table after", "autovacuums"}, text: 1,
	}
	order := load.Order(keys, true)
	zipf := func(t *bucketTable) load.Load {
		return load.Load{Ask: func(ctx context.Context, turn int) error { return t.take(ctx, keyOf(order[turn%len(order)])) }}
	}
	uniform := func(t *bucketTable) load.Load { return t.uniform(keys, 1) }
	one := func(t *bucketTable) load.Load { return t.uniform(1, 1) }
	loads := []struct {
		about   string
		load    func(*bucketTable) load.Load
		callers int
	}{
		{"64 callers, all keys equally likely", uniform, 64},
		{"256 callers, all keys equally likely", uniform, 256},
		{"64 callers, one key", one, 64},
		{"256 callers, one key", one, 256},
		{"64 callers, Zipf (s = 1.1)", zipf, 64},
		{"256 callers, Zipf (s = 1.1)", zipf, 256},
	}
	tables, before, decisions := make([]*bucketTable, len(loads)), make([]counters, len(loads)), make([]uint64, len(loads))
	for i := range loads {
		t, err := b.filledTable(ctx, "hot_"+strconv.Itoa(i), b.pool, keys, 1)
		if err != nil {
			return s, err
		}
		if before[i], err = t.counters(ctx); err != nil {
			return s, err
		}
		tables[i] = t
	}
	for round := range b.rounds {
		for i, l := range loads {
			m, err := l.load(tables[i]).Run(ctx, l.callers, 0, b.length)
			if err != nil {
				return s, err
			}
			decisions[i] += m.Requests
		}
		b.progress("hot: round %d of %d", round+1, b.rounds)
	}
	for i, l := range loads {
		after, err := tables[i].counters(ctx)
		if err != nil {
			return s, err
		}
		s.rows = append(s.rows, []string{
			l.about, stats.Thousands(float64(decisions[i])), stats.Thousands(float64(after.updates - before[i].updates)), after.hotShare(before[i]),
			bytesText(before[i].table), bytesText(after.table), strconv.FormatInt(after.vacuums-before[i].vacuums, 10),
		})
		s.targets = append(s.targets, target{
			fmt.Sprintf("%s: at least %d %% of the updates are HOT", l.about, hotShare), after.hotShare(before[i]),
			100*(after.hot-before[i].hot) >= hotShare*(after.updates-before[i].updates),
		})
		if err := tables[i].drop(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}
