package load

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Each calls do with each number below n, from 64 goroutines, until one call fails. It returns that
// error.
func Each(n int, do func(i int) error) error {
	const goroutines = 64
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make(chan error, goroutines)
	for range goroutines {
		wait.Go(func() {
			for i := int(next.Add(1) - 1); i < n && len(errs) == 0; i = int(next.Add(1) - 1) {
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs // nil if none failed
}

// OrderLength is how many turns pass before an [Order] repeats; a power of two.
const OrderLength = 1 << 16

// Order returns which of n keys is wanted at each turn: all alike, or in proportion to Zipf's law with
// s = 1.1. It is drawn beforehand, as drawing takes longer than some contenders, and the same in every
// run.
func Order(n int, zipf bool) []int {
	source := rand.New(rand.NewPCG(1, 2))
	next := func() uint64 { return source.Uint64N(uint64(n)) }
	if zipf {
		next = rand.NewZipf(source, 1.1, 1, uint64(n-1)).Uint64
	}
	order := make([]int, OrderLength)
	for i := range order {
		order[i] = int(next())
	}
	return order
}
