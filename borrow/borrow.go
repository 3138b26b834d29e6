package borrow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlimit/limiter"
)

// do calls the inner store, and counts its answers.
func (s *Store) do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	state, err := s.inner.Do(ctx, op)
	if err == nil {
		s.answers.Add(1)
	}
	return state, err
}

// doApart is do for the goroutines of this package. It returns a panic as an error, because a panic there would
// end the process.
func (s *Store) doApart(ctx context.Context, op limiter.Op) (state limiter.State, err error) {
	defer func() {
		if p := recover(); p != nil {
			state, err = limiter.State{}, fmt.Errorf("borrow: %w: panic: %v", limiter.ErrOutcomeUnknown, p)
		}
	}()
	return s.do(ctx, op)
}

// borrowing is a statement that takes tokens ahead, and those of the takes that it decides.
type borrowing struct {
	takes []*waiter
	op    limiter.Op
	aside holding // what the takes need of the holding
	sent  instant
}

// borrow takes tokens ahead until no take of the key waits. First it waits for what is given back.
func (s *Store) borrow(sh *shard, e *entry) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for {
		s.expire(sh, e, &e.holding, s.clocks())
		if back := e.back; !isClosed(back) {
			sh.mu.Unlock()
			<-back
			sh.mu.Lock()
			continue
		}
		b := s.begin(e)
		if b == nil {
			break
		}
		sh.stats.Borrows++
		sh.mu.Unlock()
		state, err := s.doApart(context.WithoutCancel(b.takes[0].ctx), b.op)
		sh.mu.Lock()
		s.complete(sh, e, b, state, err)
	}
	e.running, e.over, e.reset = false, false, false
}

// begin returns the next statement for the takes that wait, or nil if there is none to send. If n tokens do not
// cover all takes, the others wait for what is left, or go to the store if nothing will be.
func (s *Store) begin(e *entry) *borrowing {
	if e.over || s.off.Load() {
		e.sendAll()
		return nil
	}
	now := s.clocks()
	b := &borrowing{aside: e.holding, sent: now}
	var cost int64
	var others []*waiter
	for _, w := range e.waiting {
		switch {
		case w.left:
		case len(b.takes) == 0 && s.tooLarge(e, w.op.Cost, now):
			w.send(e)
		case cost > s.n-w.op.Cost:
			others = append(others, w)
		default:
			w.sent = true
			cost += w.op.Cost
			b.takes = append(b.takes, w)
		}
	}
	e.waiting = others
	if len(b.takes) == 0 {
		return nil
	}
	e.chunk = e.next(e.policy, s.n, now.mono, s.ttl)
	if cost >= e.chunk { // otherwise tokens are left for them
		e.sendAll()
	}
	b.op = b.takes[0].op
	b.op.Kind, b.op.Cost = limiter.OpTakeUpTo, max(e.chunk, cost)-e.tokens
	e.tokens = 0
	return b
}

// complete decides the takes of a statement, and those that came later and need no other one. Tokens that
// are left go to the holding, or are given back.
func (s *Store) complete(sh *shard, e *entry, b *borrowing, state limiter.State, err error) {
	now := s.clocks()
	h := b.aside
	expired := s.expire(sh, e, &h, now)
	older := h.tokens
	if err == nil {
		sh.stats.Borrowed += state.Taken
		h.add(state, b.sent, now)
	} else if errors.Is(err, errors.ErrUnsupported) {
		s.off.Store(true)
	}
	all, fresh, over := h.tokens, h.fresh(now, s.ttl), e.over || s.off.Load()
	// Then the bucket is empty. What is given back may cover another statement.
	short := state.Taken < b.op.Cost && !expired
	later := e.waiting
	e.waiting = nil
	for i, w := range slices.Concat(b.takes, later) {
		switch sent := i < len(b.takes); {
		case w.left:
		case h.tokens >= w.op.Cost && (sent || fresh):
			w.finish(h.spend(w.op.Cost, now), nil)
			if i > 0 {
				sh.stats.Local++
			}
		case sent && err != nil && !errors.Is(err, errors.ErrUnsupported):
			w.finish(limiter.State{}, err)
		case sent && err == nil && short && state.Wait > 0 && w.op.Cost > h.tokens+1: // Wait is that of a take of 1, so the store decides
			w.send(e)
		case sent && err == nil && short:
			w.finish(h.found(), nil)
		case over:
			w.send(e)
		default:
			e.waiting = append(e.waiting, w)
		}
	}
	if err == nil && all-h.tokens >= older { // the older tokens are spent
		h.charged = b.sent
	}
	if fresh && !over {
		e.holding = h
		return
	}
	if h.tokens > 0 {
		e.halve()
	}
	s.giveBackNow(e, sh.release(e, &h, now, e.reset))
}
