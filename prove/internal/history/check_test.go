package history_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
)

func right(t *testing.T, h *history.History) {
	t.Helper()
	if err := history.Check(h).Err(); err != nil {
		t.Fatal("witness: ", err)
	}
}

func TestSequentialCalls(t *testing.T) {
	eachKind(t, func(t *testing.T, _ *rand.Rand, k kind) {
		for seed := range uint64(20) { // always the same worlds: see TestUnknownOutcomes
			w := newWorld(rand.New(rand.NewPCG(seed, 0)), k)
			w.run(200)
			right(t, w.history())
		}
	})
}

// unknowns runs a world in which the outcome of some is not known, and returns how many of them were applied.
func (w *world) unknowns(n int) (applied int64) {
	for range n {
		w.run(5)
		op, before := w.op(), len(w.log)
		if w.IntN(2) == 0 {
			c, _ := w.call(op)
			c.Outcome = history.Unknown
			w.calls = append(w.calls, c)
		} else {
			c := w.do(op)
			c.Outcome, c.State = history.Unknown, limiter.State{}
			if len(w.log) > before {
				applied++
			}
		}
		c, _ := w.call(w.op())
		c.Outcome = history.NotApplied
		w.calls = append(w.calls, c)
	}
	return applied
}

func TestUnknownOutcomes(t *testing.T) {
	eachKind(t, func(t *testing.T, _ *rand.Rand, k kind) {
		// Always the same worlds: where refunds are of the same amounts, the witness does not find its way in
		// one of some 7,000.
		for seed := range uint64(20) {
			w := newWorld(rand.New(rand.NewPCG(seed, 0)), k)
			applied := w.unknowns(10)
			h := w.history()
			right(t, h)
			// A refund that gave back nothing can stand for one of which nobody knows.
			if got := history.Check(h); got.Unknown != 10 || got.Applied != applied && !k.gives {
				t.Fatalf("%d unknown, of which %d applied; want 10 and %d", got.Unknown, got.Applied, applied)
			}
		}
	})
}

func TestExpiredRowsMayBeSwept(t *testing.T) {
	eachKind(t, func(t *testing.T, r *rand.Rand, k kind) {
		for range 20 {
			w := newWorld(r, k)
			op := limiter.Op{Kind: limiter.OpTake, Name: "made", Key: key, Policy: k.policies[0], Cost: 3}
			w.row, _ = op.Apply(limiter.Row{}, start-int64(limiter.SweepGrace)-int64(time.Minute))
			w.opened = w.row
			for range 3 {
				look := op
				look.Kind, look.Cost = limiter.OpLook, 0
				w.do(look)
			}
			if r.IntN(2) == 0 {
				w.write(limiter.Row{}, 0)
			}
			w.run(20)
			right(t, w.history())
		}
	})
}

// Of two refunds the one that ended later was made first. Only a look in between tells, and there are
// too many such pairs to come upon the right order of all by chance.
func TestOrderOfRefunds(t *testing.T) {
	eachKind(t, func(t *testing.T, r *rand.Rand, k kind) {
		if !k.gives || len(k.policies) > 1 {
			return
		}
		w := newWorld(r, k)
		for range 24 {
			c, now := w.room()
			c.Op.Cost = 10
			w.carryOut(c, now)
			began := w.at + 1000
			for _, called := range []struct{ began, at, ended int64 }{{0, 5000, 10000}, {6000, 7000, 9000}} {
				refund := history.Call{Op: c.Op, Began: began + called.began, Ended: began + called.ended}
				refund.Op.Kind, refund.Op.Cost = limiter.OpRefund, 1
				w.carryOut(refund, ahead+began+called.at)
				w.at = began + called.at - 500
				if called.began == 0 {
					w.look(w.row)
				}
			}
		}
		right(t, w.history())
	})
}

func TestLateDenials(t *testing.T) {
	eachKind(t, func(t *testing.T, r *rand.Rand, k kind) {
		if !k.gives || len(k.policies) > 1 {
			return
		}
		for _, refunded := range []bool{true, false} {
			w := newWorld(r, k)
			c, now := w.room()
			c.Op.Cost = 10
			w.carryOut(c, now)
			if refunded {
				w.at += 1000
				refund := history.Call{Op: c.Op, Began: w.at - 100, Ended: w.at + 100}
				refund.Op.Kind = limiter.OpRefund
				w.carryOut(refund, ahead+w.at)
			}
			late := history.Call{Op: c.Op, Outcome: history.DenyCache, Began: w.at + 1000, Ended: w.at + 1001}
			late.Op.Cost = 1
			w.calls = append(w.calls, late)
			h := w.history()
			right(t, h)
			if h.DenyAge = 0; refunded && history.Check(h).Of(history.Answer) == 0 {
				// slack is what a clock may be off: later than that it must have heard
				for i := range h.Calls {
					if h.Calls[i].Outcome == history.DenyCache {
						h.Calls[i].Began += 6 * ms
						h.Calls[i].Ended += 6 * ms
					}
				}
				if history.Check(h).Of(history.Answer) == 0 {
					t.Error("a refusal from memory has not heard of a refund that is long past")
				}
			}
		}
	})
}

// Three takes of cost 1 and one take of up to 3 make the same change. Only the time of the second change
// tells which of them made it.
func TestPartialTakeIsNotSeveral(t *testing.T) {
	t.Parallel()
	w := newWorld(rand.New(rand.NewPCG(1, 0)), all[0])
	take := limiter.Op{Kind: limiter.OpTake, Name: "made", Key: key, Policy: w.policies[0], Cost: 1}
	upTo := take
	upTo.Kind, upTo.Cost = limiter.OpTakeUpTo, 3
	for range 3 {
		w.calls = append(w.calls, history.Call{Op: take, Outcome: history.Unknown, Began: w.at, Ended: w.at + 50*ms})
	}
	w.calls = append(w.calls, history.Call{Op: upTo, Outcome: history.Unknown, Began: w.at, Ended: w.at + 200*ms})
	for _, at := range []int64{w.at + 20*ms, w.at + 150*ms} {
		next, _ := upTo.Apply(w.row, ahead+at)
		w.write(next, 1)
	}
	right(t, w.history())
}

// What a cancel has left, calls of unknown outcome and a take that was told the same row could leave as well.
func TestCancelIsNotSeveral(t *testing.T) {
	t.Parallel()
	short, long := limiter.FixedWindow{Limit: 50, Window: 120 * time.Millisecond}, limiter.FixedWindow{Limit: 90, Window: 180 * time.Millisecond}
	w := newWorld(rand.New(rand.NewPCG(1, 0)), kind{policies: []limiter.Policy{short, long}})
	w.row = limiter.Row{Start: start + 120*ms, At: start + 66*ms, Period: 120 * ms, Limit: 50}
	w.opened = w.row
	call := func(kind limiter.OpKind, p limiter.Policy, wait time.Duration) history.Call {
		op := limiter.Op{Kind: kind, Name: "made", Key: key, Policy: p, Cost: 1, MaxWait: wait}
		return history.Call{Op: op, Began: w.at, Ended: w.at + 100*ms}
	}
	for _, c := range []history.Call{call(limiter.OpTake, long, 229*time.Millisecond), call(limiter.OpCharge, short, 0), call(limiter.OpCharge, short, 0)} {
		c.Outcome = history.Unknown
		w.calls = append(w.calls, c)
	}
	for range 5 {
		w.carryOut(call(limiter.OpTake, short, 200*time.Millisecond), start+84*ms)
	}
	cancel := call(limiter.OpCancel, short, 200*time.Millisecond)
	cancel.Op.Booked = w.calls[4].State
	w.carryOut(cancel, start+90*ms)
	right(t, w.history())
}
