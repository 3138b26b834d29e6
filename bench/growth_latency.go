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
	before, err := t.pg.walPosition(ctx)
	if err != nil {
		return err
	}
	m, err := t.uniform(t.rows, 1).Run(ctx, callers, t.warm(), t.length)
	if err != nil {
		return err
	}
	after, err := t.pg.walPosition(ctx)
	t.wal[callers] += after - before
	t.measured[callers].add(m, err)
	return err
}

// row is the line of the table for a number of callers.
func (t *sized) row(callers int) []string {
	all := t.measured[callers].total()
	// The warm-up also wrote.
	decisions := all.Requests + all.Requests/load.Warmth
	return append([]string{stats.Thousands(float64(t.rows)), strconv.Itoa(callers)},
		append(t.measured[callers].cells(), bytesText(t.wal[callers]/int64(decisions)))...)
}
