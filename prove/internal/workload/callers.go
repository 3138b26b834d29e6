// Package workload has the traffic of an application, with hot, warm and cold keys and all that a Limiter offers.
package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

// longestBlock is the longest block: a key is not blocked for most of a round.
const longestBlock = 20 * time.Millisecond

// Numbers of keys.
const (
	warmKeys  = 16   // of each limiter
	coldKeys  = 1000 // of all limiters
	hotCalls  = 400  // how many calls a process makes on a hot key before the next one is hot
	coldCalls = 3    // how many calls in a row are on one cold key, so that they meet at it
	updated   = 8    // of how many calls one is by the other version of an application: it costs several statements
)

// Options is what a process of the workload does.
type Options struct {
	Seed     uint64        // of the process
	Round    int           // part of all keys, so that no round uses those of another one
	Callers  int           // how many call at the same time
	Calls    int           // of each caller
	Timeout  time.Duration // of a call
	Tolerant bool          // calls may fail; a caller then pauses, so that a server can start
}

// Run makes calls on store and returns them, and how many others were refused from memory. An error is something
// that a Limiter must not answer.
func Run(ctx context.Context, store limiter.Store, o Options) (calls []history.Call, denied int64, err error) {
	w := &work{Options: o, recorder: &history.Recorder{Store: store}}
	for _, s := range kinds.Workload {
		var versions []*limiter.Limiter
		for _, p := range s.Policies {
			options := []limiter.Option{limiter.WithTimeout(o.Timeout)}
			if s.Denies {
				options = append(options, limiter.WithDenyCache(coldKeys, 100*time.Millisecond))
			}
			l, err := limiter.New(w.recorder, s.Name, p, options...)
			if err != nil {
				return nil, 0, err
			}
			versions = append(versions, l)
		}
		w.limiters = append(w.limiters, versions)
	}
	errs := make([]error, o.Callers)
	var wait sync.WaitGroup
	for i := range o.Callers {
		wait.Go(func() {
			c := &caller{work: w, Rand: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
			for range o.Calls {
				if errs[i] = c.call(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	return w.recorder.Calls(), w.denied.Load(), errors.Join(errs...)
}

type work struct {
	Options
	recorder  *history.Recorder
	limiters  [][]*limiter.Limiter
	hot, cold atomic.Int64 // calls so far
	denied    atomic.Int64
}

type caller struct {
	*work
	*rand.Rand
}

type place struct {
	spec    *kinds.Spec
	limiter *limiter.Limiter
	key     string
}

// place draws where a call goes: of ten calls, five to the hot key, two to warm keys and three to cold keys.
// All processes use hot and cold keys in the same order, so that they meet there.
func (c *caller) place() place {
	n, key := c.IntN(len(kinds.Workload)), ""
	kind := c.IntN(10)
	switch {
	case kind < 5:
		turn := int(c.hot.Add(1)-1) / hotCalls
		n, key = turn%len(kinds.Workload), fmt.Sprintf("hot %d.%d", c.Round, turn)
	case kind < 7:
		key = warmKey(c.Round, c.IntN(warmKeys))
	default:
		turn := int(c.cold.Add(1)-1) / coldCalls
		n, key = turn%len(kinds.Workload), coldKey(c.Round, turn/len(kinds.Workload)%(coldKeys/len(kinds.Workload)))
	}
	versions := c.limiters[n]
	version := 0
	if len(versions) > 1 && c.IntN(updated) == 0 {
		version = 1
	}
	return place{spec: &kinds.Workload[n], limiter: versions[version], key: key}
}

func warmKey(round, n int) string { return fmt.Sprintf("warm %d.%d", round, n) }
func coldKey(round, n int) string { return fmt.Sprintf("cold %d.%d", round, n) }

// call makes a call, and perhaps one that takes it back.
func (c *caller) call(ctx context.Context) (err error) {
	p, cost := c.place(), int64(1)
	if c.IntN(8) == 0 {
		cost = c.Int64N(kinds.Limit(p.limiter.Policy()) + 2)
	}
	var r limiter.Result
	switch kind := c.IntN(40); {
	case kind == 0:
		_, err := p.limiter.Peek(ctx, p.key)
		return c.failed(ctx, err)
	case kind == 1 && p.spec.GivesBack && c.IntN(8) == 0:
		return c.failed(ctx, p.limiter.Reset(ctx, p.key))
	case kind == 2 && c.IntN(8) == 0:
		d := 1 + c.Int64N(int64(longestBlock))
		return c.forced(ctx, p, p.limiter.Block(ctx, p.key, time.Duration(d)))
	case kind < 8 && p.spec.Reserves:
		return c.reserve(ctx, p, cost)
	case kind == 8:
		if r, err = p.limiter.Charge(ctx, p.key, cost); err != nil {
			return c.forced(ctx, p, err)
		}
	case kind < 11 && !(&limiter.Op{Policy: p.limiter.Policy()}).CountsRefusals():
		cost = 1 + 2*cost
		r, err = c.ask(ctx, p, limiter.Op{Kind: limiter.OpTakeUpTo, Cost: cost}, func() (limiter.Result, error) {
			return p.limiter.AllowUpTo(ctx, p.key, cost)
		})
		if r.Taken > cost || r.Allowed != (r.Taken > 0) {
			return fmt.Errorf("by %v, for up to %d: %+v", p.limiter.Policy(), cost, r)
		}
		cost = r.Taken
	default:
		r, err = c.ask(ctx, p, limiter.Op{Kind: limiter.OpTake, Cost: cost}, func() (limiter.Result, error) {
			return p.limiter.AllowN(ctx, p.key, cost)
		})
	}
	if err != nil || !r.Allowed || !p.spec.GivesBack || c.IntN(5) > 0 {
		return err
	}
	if c.IntN(2) == 0 {
		_, err = p.limiter.RefundOf(ctx, p.key, cost, r)
	} else {
		_, err = p.limiter.Refund(ctx, p.key, cost)
	}
	return c.failed(ctx, err)
}

// forced returns what is wrong with the error of a charge or block. A key that is reset and swept all
// the time may have no row whenever one looks for it; the store says that it did not apply the call.
func (c *caller) forced(ctx context.Context, p place, err error) error {
	if p.spec.GivesBack && errors.Is(err, limiter.ErrNotApplied) && !errors.Is(err, limiter.ErrOutcomeUnknown) {
		return nil
	}
	return c.failed(ctx, err)
}

// failed returns what is wrong with an error of a store, after a rest if nothing is.
func (c *caller) failed(ctx context.Context, err error) error {
	if c.Tolerant && (limiter.StoreFailed(err) || errors.Is(err, limiter.ErrKeyBusy)) {
		select {
		case <-time.After(20*time.Millisecond + time.Duration(c.Int64N(int64(40*time.Millisecond)))):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (c *caller) reserve(ctx context.Context, p place, cost int64) error {
	wait := time.Duration(c.Int64N(int64(kinds.Bookable(p.limiter.Policy()))))
	var r *limiter.Reservation
	op := limiter.Op{Kind: limiter.OpTake, Cost: cost, MaxWait: wait}
	told, err := c.ask(ctx, p, op, func() (_ limiter.Result, err error) {
		r, err = p.limiter.Reserve(ctx, p.key, cost, wait)
		return r.Result, err
	})
	switch {
	case err != nil || !told.Allowed:
		return err
	case r.Delay > wait:
		return fmt.Errorf("a reservation by %+v of %d, up to %v ahead, lies %v ahead", p.limiter.Policy(), cost, wait, r.Delay)
	case r.Delay > 0 && c.IntN(2) == 0:
		return c.failed(ctx, r.Cancel(ctx))
	}
	return nil
}

// ask calls do, and returns what cannot be an answer to op, whatever the store said. If do failed as it may, the
// Result is a refusal.
func (c *caller) ask(ctx context.Context, p place, op limiter.Op, do func() (limiter.Result, error)) (limiter.Result, error) {
	most := kinds.Limit(p.limiter.Policy())
	r, err := do()
	if op.Kind == limiter.OpTake && op.Cost > most {
		if !errors.Is(err, limiter.ErrExceedsCapacity) || r.Allowed {
			return r, fmt.Errorf("%d of %d: %+v, %w", op.Cost, most, r, err)
		}
		return r, nil
	}
	if err != nil {
		return limiter.Result{}, c.failed(ctx, err)
	}
	if r.Source == limiter.SourceDenyCache {
		c.denied.Add(1)
	}
	possible := r.Limit == most && r.Remaining >= 0 && r.Remaining <= most && r.ResetAfter >= 0
	if r.Allowed {
		possible = possible && r.RetryAfter == 0 && r.Source == limiter.SourceStore
	} else {
		possible = possible && r.RetryAfter > 0
	}
	if !possible {
		return r, fmt.Errorf("by %+v, for %d, up to %v ahead: %+v", p.limiter.Policy(), op.Cost, op.MaxWait, r)
	}
	return r, nil
}

// Expired returns rows of keys that a round is about to use, as if no caller had used them for more
// than an hour. A sweep removes some of them before they are used. The others must count as no row.
func Expired(round int, now time.Time) map[history.Key]limiter.Row {
	rows := map[history.Key]limiter.Row{}
	old := now.Add(-limiter.SweepGrace - time.Minute).UnixNano()
	add := func(n int, key string) {
		op := limiter.Op{Kind: limiter.OpTake, Name: kinds.Workload[n].Name, Key: key, Policy: kinds.Workload[n].Policies[0], Cost: 3}
		row, _ := op.Apply(limiter.Row{}, old)
		rows[history.KeyOf(&op)] = row
	}
	for n := range kinds.Workload {
		for i := 0; i < warmKeys; i += 2 {
			add(n, warmKey(round, i))
		}
		for i := 0; i < coldKeys/len(kinds.Workload); i += 3 {
			add(n, coldKey(round, i))
		}
	}
	return rows
}
