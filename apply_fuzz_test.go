package limiter_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
)

// The bounds that the tables have.
const (
	endOfTime = 1<<62 - 1<<60 - int64(time.Hour) // the latest clock reading
	maxStored = 1 << 62
)

// fold brings n into [low, high], evenly and without moving what lies there.
func fold(n, low, high int64) int64 {
	if low <= n && n <= high {
		return n
	}
	return low + int64(uint64(n)%(uint64(high-low)+1))
}

// The kinds of policies that FuzzApply tries.
const (
	aBucket = iota
	aWindow
	aSliding
	policyKinds
)

// slicesOf returns the list of a sliding window whose slices hold first, and then each more.
func slicesOf(first, more int64) string {
	var sums [18]int64
	for i := range sums {
		sums[i] = first + int64(i)*more
	}
	return rowlist.Of(sums[:]...)
}

// hostileRow is any row that a table takes.
func hostileRow(of uint8, ahead, used, more, at, period, limit int64) limiter.Row {
	row := limiter.Row{At: fold(at, 0, maxStored-1), Period: fold(period, 1, maxStored), Limit: fold(limit, 1, maxStored)}
	switch of {
	case aBucket:
		row.FullAt = fold(ahead, 0, maxStored-1)
	case aWindow:
		row.Start, row.Used = fold(ahead, 0, maxStored-1), fold(used, 0, maxStored)
	default:
		if row.At > 0 {
			row.Start, row.List = fold(ahead, 0, maxStored-1), slicesOf(used, more)
		}
	}
	return row
}

// leftRow is a row that some policy left when the clock was at `at` or, if that is 0,
// that was reset.
func leftRow(of uint8, ahead, used, more, at, period, limit int64) limiter.Row {
	row := limiter.Row{At: fold(at, 0, endOfTime)}
	if of == aBucket {
		row.Period = fold(period, int64(time.Microsecond), int64(thirtyYears))
		row.Limit = fold(limit, 1, int64(thirtyYears)/row.Period)
		if row.At > 0 {
			row.FullAt = max(0, row.At+fold(ahead, -row.At, longestDebt+1)) // more than a booking reaches
		}
		return row
	}
	longest := int64(thirtyYears)
	if of == aSliding {
		longest /= 16
	}
	row.Period, row.Limit = fold(period, int64(time.Millisecond), longest), fold(limit, 1, 1<<60)
	if row.At == 0 {
		return row
	}
	row.Start = row.At + fold(ahead, 0, int64(limiter.MaxBlock)) // more than a booking reaches
	row.Start -= row.Start % row.Period
	if of == aWindow {
		row.Used = fold(used, 0, maxStored)
	} else {
		row.List = slicesOf(fold(used, 0, 1<<60), fold(more, 0, 1<<55))
	}
	return row
}

// fuzzedOp is an operation such as a Limiter makes.
func fuzzedOp(p limiter.Policy, kind uint8, cost, wait, now int64, own bool, booked limiter.Row) limiter.Op {
	op := limiter.Op{Kind: limiter.OpKind(1 + kind%8), Policy: p, Name: "l", Key: "k"}
	if own {
		op.At = now
	}
	if op.Kind == limiter.OpTakeUpTo && op.CountsRefusals() {
		op.Kind = limiter.OpTake
	}
	switch op.Kind {
	case limiter.OpTake:
		op.Cost = fold(cost, 1, limitOf(p))
		op.MaxWait = time.Duration(fold(wait, 0, int64(limiter.MaxReserve)))
	case limiter.OpLook:
		op.Cost = fold(cost, 0, limitOf(p))
		op.MaxWait = time.Duration(fold(wait, 0, int64(limiter.MaxReserve)))
	case limiter.OpRefund, limiter.OpTakeUpTo:
		op.Cost = fold(cost, 1, math.MaxInt64)
	case limiter.OpCharge:
		op.Cost = fold(cost, 1, math.MaxInt64)
		if b, ok := p.(limiter.TokenBucket); ok {
			op.Cost = fold(cost, 1, int64(thirtyYears/b.Step()))
		}
	case limiter.OpBlock:
		op.Cost = fold(cost, 1, int64(limiter.MaxBlock))
	case limiter.OpCancel:
		op.Cost = fold(cost, 1, limitOf(p))
		op.Booked = limiter.State{Row: booked, Now: fold(wait, 1, now), Took: true}
	}
	return op
}

// FuzzApply checks that no row makes an operation panic. If a policy left the row, the operation leaves a
// row that can be stored. It grants no more than the policy has, and changes nothing where it must not.
func FuzzApply(f *testing.F) {
	hour, day := int64(time.Hour), 24*int64(time.Hour)
	now := int64(1_800_000_000) * int64(time.Second)
	seed := func(hostile bool, of uint8, limit, span int64, kind uint8, cost, wait, now int64, own bool,
		ahead, used, more, at, period, wrote int64,
	) {
		f.Add(hostile, of, limit, span, kind, cost, wait, now, own, ahead, used, more, at, period, wrote)
	}
	for kind := range uint8(8) {
		kind <<= 3
		for of := range uint8(policyKinds) {
			seed(false, of, 5, hour, kind, 1, 0, now, true, 2*hour, 3, 1, now, hour, 5)
			seed(false, of, 5, hour, kind, 1<<61, hour, now, false, hour, 1<<60, 2, now+hour, day, 5)
			seed(false, of, 5, day, kind, 5, hour, now, false, 0, 5, 0, now+hour, hour, 7)
			seed(false, of, 3, hour, kind|0x80, 3, 0, now, false, day, 9, 1, now-day, day, 2)
			seed(false, of, 1<<60, day, kind|0x80, 1<<60, 0, now, true, -endOfTime, maxStored, 1<<55, now, day, 1<<60)
			seed(false, of, 3, hour, kind, 1, 0, hour, false, -now, 0, 0, now, hour, 3)
			seed(true, of, 1<<60, int64(thirtyYears), kind, 1<<60, hour, endOfTime, true,
				maxStored-1, maxStored, -maxStored, maxStored-1, maxStored, maxStored)
			seed(true, of, 1<<40, 1000, kind, 1<<40, 0, 1, false, 0, 0, 1, maxStored-1, 1, maxStored)
		}
	}
	f.Fuzz(func(t *testing.T, hostile bool, of uint8, limit, span int64, kind uint8, cost, wait, now int64, own bool,
		ahead, used, more, at, period, wrote int64,
	) {
		of %= policyKinds
		p := fuzzedPolicy(of, limit, span, kind)
		now = fold(now, 1, endOfTime)
		if hostile {
			row := hostileRow(of, ahead, used, more, at, period, wrote)
			fuzzedOp(p, kind>>3, cost, wait, now, own, row).Apply(row, now)
			return
		}
		row := leftRow(of, ahead, used, more, at, period, wrote)
		op := fuzzedOp(p, kind>>3, cost, wait, now, own, row)
		next, s := op.Apply(row, now)
		if !storable(next) {
			t.Fatalf("%+v at %d on %+v leaves %+v, which cannot be stored", op, now, row, next)
		}
		converted := of == aWindow && next.Period < row.Period && row.At <= now+op.Tolerance(row)
		if (of == aSliding || converted) && row.At > now+op.Tolerance(next) {
			return // by the shorter window, the row may be of a clock that was set back
		}
		checkApplied(t, op, row, next, s, now)
	})
}

func fuzzedPolicy(of uint8, limit, span int64, kind uint8) limiter.Policy {
	window := func(shortest time.Duration) time.Duration {
		return time.Duration(fold(span, int64(shortest), int64(thirtyYears)))
	}
	switch of {
	case aBucket:
		step := window(time.Microsecond)
		return limiter.TokenBucket{Capacity: fold(limit, 1, int64(thirtyYears/step)), Refill: 1, Interval: step}
	case aWindow:
		w := limiter.FixedWindow{Limit: fold(limit, 1, 1<<60), Window: window(time.Millisecond)}
		w.CountRejected = kind&0x80 != 0
		return w
	}
	return limiter.SlidingWindow{Limit: fold(limit, 1, 1<<60), Window: window(16 * time.Millisecond)}
}

func storable(r limiter.Row) bool {
	sums := rowlist.Numbers(r.List)
	if len(sums) > 0 && (len(sums) != 18 || sums[0] < 0 || sums[17] > maxStored || !slices.IsSorted(sums)) {
		return false
	}
	return r.FullAt >= 0 && r.FullAt < maxStored && r.Start >= 0 && r.Start < maxStored && r.At >= 0 && r.At < maxStored &&
		r.Used >= 0 && r.Used <= maxStored && r.Period >= 1 && r.Period <= maxStored && r.Limit >= 1 && r.Limit <= maxStored
}

// checkApplied checks what an operation on a row that policies left did to it.
func checkApplied(t *testing.T, op limiter.Op, row, next limiter.Row, s limiter.State, now int64) {
	t.Helper()
	fail := func(what string) {
		t.Helper()
		t.Errorf("%+v at %d on\n%+v leaves\n%+v and tells\n%+v: %s", op, now, row, next, s, what)
	}
	switch op.Kind {
	case limiter.OpLook:
		switch again, _ := op.Apply(next, now); {
		case again != next:
			fail("a look writes anew each time")
		case next == row || next.At < row.At && !one(op, op.Cost, row, now): // the clock was stepped back
		case row.Period == 0 || next.Period == row.Period && next.Limit == row.Limit:
			fail("a look changed a row of its own policy, or one that is not there")
		case next != s.Row:
			fail("a look wrote something other than what it tells")
		}
	case limiter.OpRefund, limiter.OpCancel:
		if next.FullAt > row.FullAt || next.Used > row.Used || next.Start != row.Start || next.At != row.At ||
			next.List > row.List {
			fail("what was given back was taken")
		}
		if row.Used == maxStored && next != row {
			fail("a block was lifted")
		}
	case limiter.OpCharge:
		if taken := one(op, op.Cost, row, now); op.Cost <= limitOf(op.Policy) && taken != s.Took || op.Cost > limitOf(op.Policy) && s.Took {
			fail("the charge does not know whether there was room")
		}
		_, found := limiter.Op{Kind: limiter.OpLook, Policy: op.Policy, At: op.At}.Apply(row, now)
		if next.List == "" && next.Used < min(op.Cost, maxStored) &&
			next.FullAt <= max(now, found.Row.FullAt) && next.FullAt < now+longestDebt {
			fail("nothing was charged")
		}
	case limiter.OpBlock:
		if one(op, 1, next, now) || one(op, 1, next, now+op.Cost) {
			fail("a blocked key passes")
		}
	case limiter.OpTake, limiter.OpTakeUpTo:
		checkTaken(op, next, s, now, fail)
	}
}

// one reports whether a take of cost passes on row.
func one(op limiter.Op, cost int64, row limiter.Row, now int64) bool {
	_, s := limiter.Op{Kind: limiter.OpTake, Policy: op.Policy, Cost: cost, At: op.At}.Apply(row, now)
	return s.Took
}

func checkTaken(op limiter.Op, next limiter.Row, s limiter.State, now int64, fail func(string)) {
	w, window := op.Policy.(limiter.FixedWindow)
	b, bucket := op.Policy.(limiter.TokenBucket)
	again, told := op.Apply(next, now)
	switch {
	case s.Took && bucket && (s.Row.FullAt-now > int64(b.Step())*b.Capacity+int64(op.MaxWait) || s.Row.FullAt < now):
		fail("the bucket is overdrawn")
	case s.Took && window && (s.Row.Used > w.Limit || s.Row.Start > max(s.Row.At, s.Now+int64(op.MaxWait))):
		fail("the window is overdrawn")
	case op.Kind == limiter.OpTakeUpTo && (s.Taken > 0) != s.Took || s.Taken > op.Cost:
		fail("it does not know what it took")
	case s.Taken > 0 && s.Taken < op.Cost && told.Took:
		fail("there is more than it took")
	case !s.Took && told.Took:
		fail("what was refused passes a moment later")
	case !s.Took && !op.CountsRefusals() && again != next:
		fail("a refusal writes anew each time")
	}
}
