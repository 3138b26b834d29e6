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
	keys := b.takes / 100
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
		m, err := runUntil(ctx, t.uniform(keys, 1), callers, b.takes/samples)
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
