// Package load has callers ask, all at once, and measures what they wait.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Grace is how much longer than its time something may take until it counts as hanging.
const Grace = time.Minute

// Warmth is the share of its time that a case runs before it counts: a fourth.
const Warmth = 4

// ErrNone is returned with what was measured if no request was answered while counting.
var ErrNone = errors.New("no decision within the time")

// Load is what each of many callers does: ask, wait for the decision, and ask again.
type Load struct {
	// Ask asks for the request whose turn it is. Callers begin at turns of their own. An error ends all.
	Ask func(ctx context.Context, turn int) error
	// Requests is how many requests one call of Ask is; 0 means 1.
	Requests int
	// Sample is one in how many calls is timed; 0 means each.
	Sample int
	// Every is the time from one call of a caller to its next, however long a call takes; 0: at once. A
	// call that comes late, because the one before it took so long, has waited since it was due.
	Every time.Duration
}

// Measurement is what was measured of a Load.
type Measurement struct {
	Rate      float64         // requests a second
	Latencies []time.Duration // of the calls that were timed, sorted
	Requests  uint64
}

// The phases of a run.
const (
	warming = iota
	measuring
	stopped
)

type run struct {
	Load
	phase atomic.Int32
	mu    sync.Mutex
	sum   Measurement
}

// Run lets callers ask for warm and then, counting, for length. A request counts if its answer came
// while counting. The first error ends it.
func (l Load) Run(ctx context.Context, callers int, warm, length time.Duration) (Measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, warm+length+Grace)
	defer cancel()
	return l.While(ctx, callers, warm, func(ctx context.Context) error {
		pause(ctx, length)
		return nil
	})
}

// While is like Run, and counts for as long as work takes. An error of work is returned.
func (l Load) While(ctx context.Context, callers int, warm time.Duration, work func(ctx context.Context) error) (Measurement, error) {
	l.Requests, l.Sample = max(l.Requests, 1), max(l.Sample, 1)
	r := &run{Load: l}
	all, ctx := errgroup.WithContext(ctx)
	for i := range callers {
		start := rand.IntN(1 << 30)
		due := time.Now().Add(l.Every * time.Duration(i) / time.Duration(callers)) // not all at once
		all.Go(func() error { return r.call(ctx, start, due) })
	}
	var elapsed time.Duration
	all.Go(func() error {
		pause(ctx, warm)
		r.phase.Store(measuring)
		began := time.Now()
		err := work(ctx)
		r.phase.Store(stopped)
		elapsed = time.Since(began)
		return err
	})
	err := all.Wait()
	slices.Sort(r.sum.Latencies)
	r.sum.Rate = float64(r.sum.Requests) / elapsed.Seconds()
	if err == nil && r.sum.Requests == 0 {
		err = fmt.Errorf("%w of %v", ErrNone, elapsed)
	}
	return r.sum, err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (r *run) call(ctx context.Context, start int, due time.Time) error {
	var latencies []time.Duration
	var counted uint64
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sum.Requests += counted
		r.sum.Latencies = append(r.sum.Latencies, latencies...)
	}()
	for turn := start; ; turn++ {
		if r.Every > 0 {
			pause(ctx, time.Until(due))
		}
		if r.phase.Load() == stopped {
			return nil
		}
		timed := turn%r.Sample == 0
		var began time.Time
		if timed {
			began = time.Now()
		}
		if r.Every > 0 {
			began, due = due, due.Add(r.Every)
		}
		if err := r.Ask(ctx, turn); err != nil {
			return err
		}
		now := r.phase.Load()
		if now == measuring {
			counted += uint64(r.Requests)
		}
		// Calls in flight at the end are also timed. Otherwise the slowest would be left out.
		if timed && now != warming {
			latencies = append(latencies, time.Since(began))
		}
	}
}

// Each calls do with each number below n, from 64 goroutines, until one call fails. It returns that
// error.
func Each(n int, do func(i int) error) error {
	all, failed := errgroup.WithContext(context.Background())
	all.SetLimit(64)
	for i := 0; i < n && failed.Err() == nil; i++ {
		all.Go(func() error { return do(i) })
	}
	return all.Wait()
}

// OrderLength is how many turns pass at least before an [Order] repeats.
const OrderLength = 1 << 16

// Order returns which of n keys is wanted at each turn: all alike, or in proportion to Zipf's law with
// s = 1.1. Its length is a power of two, and at least four times n. It is the same in every run. It is drawn
// beforehand, because drawing takes longer than some contenders.
func Order(n int, zipf bool) []int {
	source := rand.New(rand.NewPCG(1, 2))
	next := func() uint64 { return source.Uint64N(uint64(n)) }
	if zipf {
		next = rand.NewZipf(source, 1.1, 1, uint64(n-1)).Uint64
	}
	order := make([]int, max(OrderLength, 1<<bits.Len(uint(4*n-1))))
	for i := range order {
		order[i] = int(next())
	}
	return order
}
