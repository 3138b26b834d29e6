package borrow

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
)

// owed is tokens that a process does not spend anymore, and must give back.
type owed struct {
	id
	policy bucket
	tokens int64
}

// and returns both together, which are of one key.
func (o owed) and(other owed) owed {
	if o.tokens == 0 {
		return other
	}
	o.tokens += other.tokens
	return o
}

// release takes the tokens out of a holding, and returns those that must be given back. After a reset there
// are none.
func (sh *shard) release(e *entry, h *holding, now instant, reset bool) (back owed) {
	switch {
	case h.tokens == 0:
		return owed{}
	case reset || h.copied(now):
		sh.stats.Lost += h.tokens
	default:
		back = owed{e.id, h.policy, h.refund(now, &e.carried)}
		sh.stats.GivenBack += h.tokens - back.tokens
	}
	h.tokens = 0
	return back
}

// end ends the holding of a key, and what is under way for it. Waiting takes go to the store.
func (sh *shard) end(e *entry, now instant, reset bool) (back owed) {
	back = sh.release(e, &e.holding, now, reset)
	e.demand = demand{}
	e.over, e.reset = e.running, e.running && (e.reset || reset)
	e.sendAll()
	return back
}

// giveBack gives tokens back by one statement, which is not repeated.
func (s *Store) giveBack(ctx context.Context, back owed, timeout time.Duration) error {
	if back.tokens == 0 {
		return nil
	}
	op := limiter.Op{Kind: limiter.OpRefund, Name: back.name, Key: back.key, Policy: back.policy, Cost: back.tokens, Timeout: timeout}
	state, err := s.do(ctx, op)
	sh := s.shardOf(&op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err == nil && state.Took {
		sh.stats.GivenBack += back.tokens
	} else {
		sh.stats.Lost += back.tokens
	}
	return err
}

// giveUp gives back what the holding of a removed entry has. The caller has locked the shard.
func (s *Store) giveUp(sh *shard, e *entry, now instant) {
	if e != nil {
		s.giveBackNow(sh.release(e, &e.holding, now, false), limiter.DefaultTimeout)
	}
}

// giveBackNow starts to give tokens back, and returns a channel that is closed when the store has answered.
// The caller has locked the shard: then [Store.Shutdown] waits for it.
func (s *Store) giveBackNow(back owed, timeout time.Duration) <-chan struct{} {
	if back.tokens == 0 {
		return closed
	}
	done := make(chan struct{})
	s.busy.Go(func() {
		defer close(done)
		_ = s.giveBack(context.Background(), back, timeout)
	})
	return done
}

var closed = func() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

// await waits until done is closed or ctx ends.
func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}
