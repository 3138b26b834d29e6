package main

import (
	"context"
	"slices"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// fill asks for every key once, so that all of them are there, and those that let one request pass
// have nothing left. All of these requests must pass.
func fill(ctx context.Context, d decider, names []string, rows int) error {
	if rows > 0 {
		for chunk := range slices.Chunk(names, rows) {
			if err := expectRows(ctx, d, chunk, true); err != nil {
				return err
			}
		}
		return nil
	}
	return load.Each(len(names), func(i int) error { return expect(ctx, d, names[i], true) })
}
