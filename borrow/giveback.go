package borrow

import (
	"context"

	"github.com/sqlimit/limiter"
)

// release takes the tokens out of a holding, and returns the refund to send. Its Cost is 0 if nothing must be
// given back, as after a reset.
func (sh *shard) release(e *entry, h *holding, now instant, reset bool) limiter.Op {
	back := limiter.Op{Kind: limiter.OpRefund, Name: e.name, Key: e.key, Policy: h.policy, Timeout: e.timeout}
	switch {
	case h.tokens == 0:
	case reset || h.copied(now):
		sh.stats.Lost += h.tokens
	default:
		back.Cost = h.refund(now, &e.carried)
		sh.stats.GivenBack += h.tokens - back.Cost
	}
	h.tokens = 0
	return back
}

// expire gives tokens back that may not be spent anymore, and reports whether there were any. The caller has
// locked the shard.
func (s *Store) expire(sh *shard, e *entry, h *holding, now instant) bool {
	if h.tokens == 0 || h.fresh(now, s.ttl) {
		return false
	}
	e.halve()
	s.giveBackNow(e, sh.release(e, h, now, e.reset))
	return true
}

// end ends the holding of a key, and what is under way for it. Waiting takes go to the store. The caller has
// locked the shard.
func (s *Store) end(sh *shard, e *entry, now instant, reset bool) {
	s.giveBackNow(e, sh.release(e, &e.holding, now, reset))
	e.demand = demand{}
	e.over, e.reset = e.running, e.running && (e.reset || reset)
	e.sendAll()
}

// giveBack gives tokens back by one statement, which is not repeated.
func (s *Store) giveBack(back limiter.Op) {
	state, err := s.doApart(context.Background(), back)
	sh := s.shardOf(&back)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err == nil && state.Took {
		sh.stats.GivenBack += back.Cost
	} else {
		sh.stats.Lost += back.Cost
	}
	if err != nil && s.closing.Load() {
		s.failed.CompareAndSwap(nil, &err)
	}
}

// giveBackNow starts to give tokens of a key back. The caller has locked the shard: then [Store.Shutdown]
// waits for it.
func (s *Store) giveBackNow(e *entry, back limiter.Op) {
	if back.Cost == 0 {
		return
	}
	before, done := e.back, make(chan struct{})
	e.back = done
	s.busy.Go(func() {
		defer close(done)
		s.giveBack(back)
		<-before
	})
}

var closed = func() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// await waits until done is closed or ctx ends.
func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}
