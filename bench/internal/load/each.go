package load

import (
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
