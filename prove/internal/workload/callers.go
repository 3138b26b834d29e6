// Package workload is what the callers of a history do: the traffic of an application with
// hot, warm and cold keys, and with all that a Limiter offers.
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

// DenyAge is how long Limiters keep refusals in memory.
const DenyAge = 100 * time.Millisecond

// longestBlock is the longest block: a key is not blocked for most of a round.
const longestBlock = 20 * time.Millisecond

// Numbers of keys.
const (
	warmKeys = 16   // of each limiter
	coldKeys = 1000 // of all limiters
	// hotCalls is how many calls a process makes on a hot key before the next one is hot.
	hotCalls = 400
	// coldCalls is how many calls in a row are on one cold key, so that they meet at it.
	coldCalls = 3
	// updated is of how many calls one is by the other version of an application: each change
	// costs several statements.
	updated = 8
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

// Run makes calls on store and returns them. An error is something that a Limiter must not answer.
func Run(ctx context.Context, store limiter.Store, o Options) ([]history.Call, error) {
	w := &work{Options: o, recorder: &history.Recorder{Store: store}}
	for _, s := range kinds.Workload {
		var versions []*limiter.Limiter
		for _, p := range s.Policies {
			options := []limiter.Option{limiter.WithTimeout(o.Timeout)}
			if s.Denies {
				options = append(options, limiter.WithDenyCache(coldKeys, DenyAge))
			}
			l, err := limiter.New(w.recorder, s.Name, p, options...)
			if err != nil {
				return nil, err
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
	return w.recorder.Calls(), errors.Join(errs...)
}

type work struct {
	Options
	recorder  *history.Recorder
	limiters  [][]*limiter.Limiter
	hot, cold atomic.Int64 // calls so far
}

type caller struct {
	*work
	*rand.Rand
}

type place struct {
	spec    *kinds.Spec
	limiter *limiter.Limiter
	key     string
	hot     bool
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
	return place{spec: &kinds.Workload[n], limiter: versions[version], key: key, hot: kind < 5}
}

// partial reports whether a part of a request can pass there.
func (p place) partial() bool {
	return !(&limiter.Op{Policy: p.limiter.Policy()}).CountsRefusals()
}

func warmKey(round, n int) string { return fmt.Sprintf("warm %d.%d", round, n) }
func coldKey(round, n int) string { return fmt.Sprintf("cold %d.%d", round, n) }

// call makes a call, and perhaps one that takes it back.
func (c *caller) call(ctx context.Context) error {
	p := c.place()
	most := kinds.Limit(p.limiter.Policy())
	cost := int64(1)
	if c.IntN(8) == 0 {
		cost = c.Int64N(most + 2)
	}
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
		return c.reserve(ctx, p, cost, most)
	case kind == 8:
		return c.charge(ctx, p, cost, most)
	case kind < 11 && p.partial():
		return c.takeUpTo(ctx, p, 1+2*cost, most)
	}
	r, err := c.take(ctx, p, cost, most)
	if err != nil {
		return err
	}
	return c.refund(ctx, p, cost, r)
}

func (c *caller) refund(ctx context.Context, p place, cost int64, r limiter.Result) (err error) {
	switch {
	case !r.Allowed || !p.spec.GivesBack || c.IntN(5) > 0:
		return nil
	case c.IntN(2) == 0:
		_, err = p.limiter.RefundOf(ctx, p.key, cost, r)
	default:
		_, err = p.limiter.Refund(ctx, p.key, cost)
	}
	return c.failed(ctx, err)
}

// charge charges cost, which may be more than there is or ever will be.
func (c *caller) charge(ctx context.Context, p place, cost, most int64) error {
	r, err := p.limiter.Charge(ctx, p.key, cost)
	if err != nil {
		return c.forced(ctx, p, err)
	}
	if r.Source != limiter.SourceStore || r.Limit != most || r.Remaining < 0 || r.Remaining > most || r.RetryAfter < 0 || r.ResetAfter < 0 {
		return fmt.Errorf("by %+v, a charge of %d: %+v", p.limiter.Policy(), cost, r)
	}
	return c.refund(ctx, p, cost, r)
}

// forced returns what is wrong with the error of a charge or block. A key that is reset and swept all
// the time may have no row whenever one looks for it; the store says that it did not apply the call.
func (c *caller) forced(ctx context.Context, p place, err error) error {
	if p.spec.GivesBack && errors.Is(err, limiter.ErrNotApplied) && !errors.Is(err, limiter.ErrOutcomeUnknown) {
		return nil
	}
	return c.failed(ctx, err)
}

// takeUpTo takes as much of cost as there is room for.
func (c *caller) takeUpTo(ctx context.Context, p place, cost, most int64) error {
	op := limiter.Op{Kind: limiter.OpTakeUpTo, Cost: cost}
	began := history.Clock()
	r, err := p.limiter.AllowUpTo(ctx, p.key, cost)
	if err == nil && (r.Taken > cost || r.Allowed != (r.Taken > 0)) {
		return fmt.Errorf("by %v, for up to %d: %+v", p.limiter.Policy(), cost, r)
	}
	if wrong := c.answered(ctx, p, op, most, r, began, err); wrong != nil || err != nil {
		return wrong
	}
	return c.refund(ctx, p, r.Taken, r)
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

// take takes at once. If that failed as it may, the Result is a refusal.
func (c *caller) take(ctx context.Context, p place, cost, most int64) (limiter.Result, error) {
	began := history.Clock()
	r, err := p.limiter.AllowN(ctx, p.key, cost)
	return r, c.answered(ctx, p, limiter.Op{Kind: limiter.OpTake, Cost: cost}, most, r, began, err)
}

func (c *caller) reserve(ctx context.Context, p place, cost, most int64) error {
	wait := time.Duration(c.Int64N(int64(kinds.Bookable(p.limiter.Policy()))))
	began := history.Clock()
	r, err := p.limiter.Reserve(ctx, p.key, cost, wait)
	op := limiter.Op{Kind: limiter.OpTake, Cost: cost, MaxWait: wait}
	if err := c.answered(ctx, p, op, most, r.Result, began, err); err != nil {
		return err
	}
	if err == nil && r.Allowed && r.Delay > wait {
		return fmt.Errorf("a reservation by %+v of %d, up to %v ahead, lies %v ahead", p.limiter.Policy(), cost, wait, r.Delay)
	}
	if err == nil && r.Allowed && r.Delay > 0 && c.IntN(2) == 0 {
		return c.failed(ctx, r.Cancel(ctx))
	}
	return nil
}

// answered records a refusal from memory, which no store hears of, and returns what cannot
// be an answer to op, whatever the store said.
func (c *caller) answered(ctx context.Context, p place, op limiter.Op, most int64, r limiter.Result, began int64, err error) error {
	if op.Kind == limiter.OpTake && op.Cost > most {
		if !errors.Is(err, limiter.ErrExceedsCapacity) || r.Allowed {
			return fmt.Errorf("%d of %d: %+v, %w", op.Cost, most, r, err)
		}
		return nil
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	if r.Source == limiter.SourceDenyCache {
		op.Name, op.Key, op.Policy = p.limiter.Name(), p.key, p.limiter.Policy()
		c.recorder.Denied(op, began, history.Clock())
	}
	possible := r.Limit == most && r.Remaining >= 0 && r.Remaining <= most && r.ResetAfter >= 0
	if r.Allowed {
		possible = possible && r.RetryAfter == 0 && r.Source == limiter.SourceStore
	} else {
		possible = possible && r.RetryAfter > 0
	}
	if !possible {
		return fmt.Errorf("by %+v, for %d, up to %v ahead: %+v", p.limiter.Policy(), op.Cost, op.MaxWait, r)
	}
	return nil
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
