package batch

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// lead sends statements for a line until no key waits in it. In the slow line, or after a move there, it
// sends one, because another queue may wait for the slot.
func (q *Queue) lead(from *line) {
	for op, ctx := q.head(from); ctx != nil; op, ctx = q.head(from) {
		limited := q.config.Deadlines.WithTimeout(context.WithoutCancel(ctx), op.Timeout)
		q.mu.Lock()
		st := q.newStatement(from)
		q.mu.Unlock()
		err := q.config.Send(limited, st)
		// If the time is over, it was the head's, and its caller has left. The other calls have time limits
		// of their own.
		unsent := st.unsent.Load()
		over := unsent && limited.Err() != nil
		if unsent && !over { // there is no connection for any call
			q.fill(st)
		}
		q.complete(st, err)
		opcontext.Stop(limited)
		q.mu.Lock()
		ended, slow := st.ended, st.moved || !over && from == &q.slow
		st.recycle()
		if slow {
			q.freeSlot(&q.slow)
		}
		q.mu.Unlock()
		switch {
		case ended, slow:
			return
		case !GivesBack(&op):
			runtime.Gosched() // callers who were just answered may want to join the next statement
		}
	}
}

// head returns the operation of the call that has waited longest, and its context; its time limit bounds the
// wait for a connection. If no call waits, the context is nil, and the line counts one statement less. If a
// Hold is the first in the line, it gets the key and the slot.
func (q *Queue) head(from *line) (limiter.Op, context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.first(from)
	switch {
	case k == nil:
		q.freeSlot(from)
		return limiter.Op{}, nil
	case k.waiting[0].hold != nil:
		from.keys = from.keys[1:]
		q.grant(k)
		return limiter.Op{}, nil
	}
	return k.waiting[0].Op, k.waiting[0].ctx
}

// fill moves keys of the line to the Statement: one key of the single line, otherwise as many as fit.
func (q *Queue) fill(st *Statement) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := 1
	if st.from == &q.shared {
		most = q.config.Keys
	}
	for len(st.Groups) < most {
		k := q.first(st.from)
		if k == nil {
			break
		}
		head := k.waiting[0]
		if head.hold == nil && !q.renew(head, k) { // its time ended just now
			continue
		}
		st.from.keys = st.from.keys[1:]
		if head.hold != nil {
			st.ended = true
			q.grant(k)
			break
		}
		q.fillGroup(k, st.group())
	}
	slices.SortFunc(st.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.Op().Name, b.Op().Name), cmp.Compare(a.Op().Key, b.Op().Key))
	})
}

// complete tells callers the outcome of a leader's statement, and ends it for its keys.
func (q *Queue) complete(st *Statement, err error) {
	if st.limited != nil {
		opcontext.Stop(st.limited)
	}
	if len(st.Groups) == 0 {
		return
	}
	// One invalid or locked row must not fail the other calls.
	several := len(st.Groups) > 1 || len(st.Groups[0].Calls) > 1
	retry := err != nil && !st.unsent.Load() && several && !errors.Is(err, limiter.ErrOutcomeUnknown)
	locked := err != nil && st.isLocked(err) && len(st.Groups) == 1
	var start []*line
	q.mu.Lock()
	for _, g := range st.Groups {
		k := g.key
		k.apart = false
		again := false
		if locked {
			again, err = q.lockTimedOut(k, st, err)
		}
		var back []*Call
		for _, c := range g.Calls {
			switch {
			case c.decided && err == nil:
				c.finish(nil)
			case locked && !again:
				c.finish(c.lockError(err))
			case err != nil && !again && (!retry || c.retried):
				c.finish(err)
			default:
				// The call failed together with others, or could not be decided.
				c.decided, c.retried = false, c.retried || err != nil
				if !c.left {
					q.config.Counters.Queued.Add(1)
					if err != nil {
						q.config.Counters.Retries.Add(1)
					}
				}
				k.apart = k.apart || err != nil || c.ReadFirst
				back = append(back, c)
			}
		}
		if len(back) > 0 {
			k.putBack(back, q.config.Merges)
		}
		if line := q.free(k, !st.unsent.Load(), err); line != nil {
			start = append(start, line)
		}
	}
	q.mu.Unlock()
	for _, line := range start {
		go q.lead(line)
	}
}
