package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how much longer than its time a case may take until it counts as hanging.
const patience = time.Minute

// measurement is the outcome of one case in one round.
type measurement struct {
	rate      float64 // decisions a second
	latencies histogram
}

// phase is what the callers are doing.
type phase int32

const (
	warming phase = iota
	measuring
	stopped
)

// meter has callers ask a decider, and checks and counts what it says.
type meter struct {
	decider decider
	wants   bool
	sample  int
	rows    int
	order   []string

	phase  atomic.Int32
	cancel context.CancelFunc
	mu     sync.Mutex
	sum    measurement
	passed uint64
	err    error
}

// measure lets callers ask for warm and then, counting, for length. A decision counts if it came while
// counting. The first error, or decision that should have been the other, ends it.
func (m *meter) measure(ctx context.Context, callers int, warm, length time.Duration) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, warm+length+patience)
	defer cancel()
	m.cancel = cancel
	var wait sync.WaitGroup
	for range callers {
		start := rand.IntN(orderLength)
		wait.Go(func() { m.call(ctx, start) })
	}
	m.pause(ctx, warm)
	m.phase.CompareAndSwap(int32(warming), int32(measuring))
	began := time.Now()
	m.pause(ctx, length)
	m.phase.Store(int32(stopped))
	elapsed := time.Since(began)
	wait.Wait()
	m.sum.rate = float64(m.passed) / elapsed.Seconds()
	if m.err == nil && m.passed == 0 {
		m.err = fmt.Errorf("no decision within %v", length)
	}
	return m.sum, m.err
}

func (m *meter) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// call asks until the end.
func (m *meter) call(ctx context.Context, start int) {
	var latencies histogram
	var counted uint64
	for turn := start; ; turn++ {
		if phase(m.phase.Load()) == stopped {
			break
		}
		timed := turn%m.sample == 0
		var began time.Time
		if timed {
			began = time.Now()
		}
		if err := m.ask(ctx, turn); err != nil {
			m.fail(err)
			break
		}
		now := phase(m.phase.Load())
		if now == measuring {
			counted += uint64(max(m.rows, 1))
		}
		// Those that are under way at the end are timed, too, or none that is slow would be.
		if timed && now != warming {
			latencies.add(time.Since(began))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed += counted
	m.sum.latencies.merge(&latencies)
}

// ask asks for the request whose turn it is, or for as many as the decider takes at once.
func (m *meter) ask(ctx context.Context, turn int) error {
	if m.rows > 0 {
		from := turn * m.rows % orderLength
		return expectRows(ctx, m.decider, m.order[from:from+m.rows], m.wants)
	}
	return expect(ctx, m.decider, m.order[turn%orderLength], m.wants)
}

func (m *meter) fail(err error) {
	m.phase.Store(int32(stopped))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
	m.cancel()
}

// expect asks for one request, and fails if the decision is not the one wanted.
func expect(ctx context.Context, d decider, key string, wants bool) error {
	allowed, err := d.allow(ctx, key)
	if err == nil && allowed != wants {
		err = fmt.Errorf("%q: allowed is %t, want %t", key, allowed, wants)
	}
	return err
}

// expectRows asks for a request for each key, and fails unless all or none of them pass, as is wanted.
func expectRows(ctx context.Context, d decider, keys []string, wants bool) error {
	granted, err := d.batch(ctx, keys)
	want := 0
	if wants {
		want = len(keys)
	}
	if err == nil && granted != want {
		err = fmt.Errorf("%d of %d rows were granted, want %d", granted, len(keys), want)
	}
	return err
}
