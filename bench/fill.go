package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// fillers is how many fill at a time.
const fillers = 64

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
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make(chan error, fillers)
	for range fillers {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(names)); i = next.Add(1) - 1 {
				if err := expect(ctx, d, names[i], true); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs // nil if nobody failed
}
