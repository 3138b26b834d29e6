package limiter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

// Edge cases that random operations rarely reach. Times are in nanoseconds.
func TestApplyAtEdges(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	window := func(limit, seconds int64) limiter.FixedWindow {
		return limiter.FixedWindow{Limit: limit, Window: time.Duration(seconds * s)}
	}
	row := func(start, used, at, period, limit int64) limiter.Row {
		return limiter.Row{Start: start * s, Used: used, At: at * s, Period: period * s, Limit: limit}
	}
	blocked, _ := (&limiter.Op{Kind: limiter.OpBlock, Policy: window(5, 10), Cost: 1}).Apply(limiter.Row{}, 105*s)
	moved := blocked
	moved.Start, moved.At, blocked.At = 80*s, 90*s-1, 110*s-1 // in the last nanosecond of the block
	ahead := limiter.Row{FullAt: 100 * s, At: 10*s + int64(limiter.ClockTolerance), Period: s, Limit: 500}
	stepped := ahead
	stepped.At++
	march := time.Date(2023, 3, 1, 0, 0, 0, 0, time.UTC).Unix()
	op := func(kind limiter.OpKind, p limiter.Policy, cost int64) limiter.Op {
		return limiter.Op{Kind: kind, Policy: p, Cost: cost}
	}
	bucket := func(capacity int64) limiter.Policy {
		return limiter.TokenBucket{Capacity: capacity, Refill: 1, Interval: time.Second}
	}
	waiting := op(limiter.OpTake, limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 1001}, 1)
	waiting.MaxWait = 1
	fast := limiter.Row{FullAt: 10*s + 5000, At: 10 * s, Period: 1000, Limit: 5}
	cancelWindow := op(limiter.OpCancel, window(5, 10), 1)
	cancelWindow.Booked = limiter.State{Row: row(100, 1, 95, 10, 5), Now: 95 * s}
	booked := limiter.Row{FullAt: 20 * s, At: 10 * s, Period: s, Limit: 5}
	late := op(limiter.OpTake, window(5, 10), 1)
	late.At = 84 * s
	cancelBucket := op(limiter.OpCancel, bucket(5), 1)
	cancelBucket.Booked = limiter.State{Row: booked, Now: 10 * s}
	larger, slower, empty, refilled := booked, booked, booked, booked
	larger.Limit, slower.Period, empty.FullAt, refilled.FullAt = 6, 2*s, 15*s, 10*s
	small, slow := limiter.Row{FullAt: 10 * s, At: 10 * s, Period: s, Limit: 1}, limiter.Row{FullAt: 10 * s, At: 9 * s, Period: 2 * s, Limit: 5}
	ending := op(limiter.OpTake, limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 2001}, 1)
	ending.MaxWait = 3000
	faster := limiter.Row{FullAt: 10*s + 15_000, At: 10 * s, Period: 1000, Limit: 5}
	near := op(limiter.OpTake, window(5, 60), 1)
	near.MaxWait = 12 * time.Second
	slide := limiter.SlidingWindow{Limit: 5, Window: 16 * time.Second}
	slid := func(start, at int64) limiter.Row { // with a count of 1 in the newest slice
		return limiter.Row{Start: start, At: at, List: strings.Repeat("\x00", 8*18-1) + "\x01", Period: s, Limit: 5}
	}
	most, full := slid(100*s, 100*s), slid(100*s, 100*s)
	most.List, full.List = most.List[:8*17]+"\x20"+strings.Repeat("\x00", 7), slicesOf(1<<61, 0)
	none, cancelSlide := slid(11*s, 10*s), op(limiter.OpCancel, slide, 1)
	none.List, cancelSlide.Booked = strings.Repeat("\x00", 8*18), limiter.State{Row: slid(11*s, 10*s), Now: 10 * s}
	coarse, last := slid(100*s, 100*s), slid(117*s, 117*s)
	coarse.Period, last.List = 2*s, last.List[:8]+strings.Repeat(last.List[8*17:], 17) // in the oldest slice that counts
	for _, test := range []struct {
		name string
		op   limiter.Op
		row  limiter.Row
		now  int64
		next limiter.Row
		took bool
		wait int64
	}{
		{"a reset of a window leaves only its policy", op(limiter.OpReset, window(5, 10), 0), row(100, 3, 105, 10, 5), 106 * s, row(0, 0, 0, 10, 5), true, 0},
		{"a block moves back by whole windows with the clock", op(limiter.OpCharge, window(5, 10), 1), blocked, 90*s - 1, moved, false, 0},
		{
			"a window that ran longer is blocked where its start is not ahead",
			op(limiter.OpCharge, window(5, 10), 1), row(101, 1, 100, 1, 5), 100 * s, row(100, 1<<62, 100, 10, 5), false, 0,
		},
		{"a charge with an older clock keeps the row's clock", op(limiter.OpCharge, window(5, 10), 1), row(110, 3, 111, 10, 5), 109 * s, row(110, 4, 111, 10, 5), true, 0},
		{
			"a block with an older clock keeps the row's clock",
			op(limiter.OpBlock, window(5, 10), 1), row(110, 3, 111, 10, 5), 109 * s, row(110, 1<<62, 111, 10, 5), true, 0,
		},
		{
			"a refused look writes that the clock was set back into a shorter month",
			op(limiter.OpLook, limiter.CalendarWindow{Limit: 100, Period: limiter.Month}, 1), row(march, 50, march+10, 31*86_400, 100), (march - 5) * s,
			row(march-28*86_400, 100, march-5, 28*86_400, 100), false, 0,
		},
		{
			"a refusal waits for the row's own window beyond the next one",
			op(limiter.OpTake, window(5, 10), 1), row(7, 5, 8, 7, 5), 8 * s, row(7, 5, 8, 7, 5), false, 6 * s,
		},
		{"a row moves back by its own windows with the clock", op(limiter.OpTake, window(5, 10), 1), row(70, 3, 75, 7, 5), 65 * s, row(63, 5, 65, 7, 5), false, 5 * s},
		{"a refusal that converts the row sets no Wait", op(limiter.OpTake, window(5, 10), 1), row(60, 5, 61, 60, 5), 65 * s, row(60, 5, 65, 10, 5), false, 0},
		{"a cancel needs the booking's window length", cancelWindow, row(100, 1, 95, 20, 5), 95 * s, row(100, 1, 95, 20, 5), false, 0},
		{"a cancel needs the booking's window", cancelWindow, row(110, 1, 95, 10, 5), 95 * s, row(110, 1, 95, 10, 5), false, 0},
		{"a cancel needs the booking's capacity", cancelBucket, larger, 10 * s, larger, false, 0},
		{"a cancel needs the booking's step", cancelBucket, slower, 10 * s, slower, false, 0},
		{"a refund gives back no more than the capacity", op(limiter.OpRefund, bucket(5), 1<<62), empty, 10 * s, refilled, true, 0},
		{"a clock that is behind by the tolerance was not stepped", op(limiter.OpTake, bucket(500), 500), ahead, 10 * s, ahead, false, 0},
		{
			"a clock behind by 1 ns more was stepped back",
			op(limiter.OpCharge, bucket(500), 1), stepped, 10 * s,
			limiter.Row{FullAt: ahead.FullAt + 10*s - stepped.At + s, At: 10 * s, Period: s, Limit: 500},
			true, 0,
		},
		{"a reset bucket of another policy is full", op(limiter.OpCharge, bucket(5), 1), limiter.Row{Period: s, Limit: 1}, 60 * s, limiter.Row{FullAt: 61 * s, At: 60 * s, Period: s, Limit: 5}, true, 0},
		{"a bucket 1 ns before it expires keeps its tokens", op(limiter.OpCharge, bucket(5), 1), small, 3610*s - 1, limiter.Row{FullAt: 3615*s - 1, At: 3610*s - 1, Period: s, Limit: 5}, true, 0},
		{"a bucket that has expired is full", op(limiter.OpCharge, bucket(5), 1), small, 3610 * s, limiter.Row{FullAt: 3611 * s, At: 3610 * s, Period: s, Limit: 5}, true, 0},
		{"a look that passes leaves a full bucket of a slower policy as it is", op(limiter.OpLook, bucket(5), 1), slow, 10 * s, slow, false, 0},
		{"a refusal leaves a larger bucket of the same rate as it is", op(limiter.OpTake, bucket(4), 1), empty, 10 * s, empty, false, s},
		{"a look converts a bucket that is too small", op(limiter.OpLook, bucket(6), 6), booked, 10 * s, limiter.Row{FullAt: 21 * s, At: 10 * s, Period: s, Limit: 6}, false, 0},
		{"a MaxWait longer than the cost takes to come back", ending, faster, 10 * s, faster, false, 9001},
		{"a refusal waits until the next window is within MaxWait", near, row(100, 5, 105, 10, 5), 105 * s, row(100, 5, 105, 10, 5), false, 3 * s},
		{"a window keeps its count if the clock is set back within it", op(limiter.OpTake, window(5, 60), 1), row(60, 1, 110, 60, 5), 70 * s, row(60, 2, 70, 60, 5), true, 0},
		{"an own clock that is late by more than the new window was set back", late, row(60, 1, 95, 60, 5), 84 * s, row(80, 2, 84, 10, 5), true, 0},
		{"a look that passes does not write that the clock was set back", op(limiter.OpLook, window(5, 60), 0), row(60, 1, 110, 60, 5), 70 * s, row(60, 1, 110, 60, 5), false, 0},
		{"a sliding window begins with the slice at the clock", op(limiter.OpTake, slide, 1), limiter.Row{}, 10 * s, slid(10*s, 10*s), true, 0},
		{"a charge counts up to 2^61", op(limiter.OpCharge, slide, math.MaxInt64), slid(100*s, 100*s), 100 * s, most, false, 0},
		{"a block of a sliding window is a change", op(limiter.OpBlock, slide, 1), limiter.Row{}, 10 * s, none, true, 0},
		{"a cancel of a sliding window is a change", cancelSlide, slid(11*s, 10*s), 10 * s, none, true, 0},
		{"the sums begin anew with a take", op(limiter.OpTake, slide, 1), full, 100 * s, slid(100*s, 100*s), true, 0},
		{"the sums begin anew with a charge", op(limiter.OpCharge, slide, 1), full, 100 * s, slid(100*s, 100*s), true, 0},
		{"a look that passes does not write that slices were set back", op(limiter.OpLook, slide, 1), slid(100*s, 100*s), 90 * s, slid(100*s, 100*s), false, 0},
		{"a slice that has begun is not ahead after a step back", op(limiter.OpTake, slide, 5), slid(100*s, 100*s), 97*s + 1, slid(97*s, 97*s+1), false, 0},
		{"a look converts slices while the oldest one counts", op(limiter.OpLook, slide, 1), coarse, 117 * s, last, false, 0},
		{"a reset of a sliding window leaves only its policy", op(limiter.OpReset, slide, 0), slid(100*s, 100*s), 100 * s, row(0, 0, 0, 1, 5), true, 0},
		{"a wait in the row's time is rounded up", waiting, fast, 10 * s, fast, false, 1000},
		{
			"a conversion of nearly 64 bits does not overflow",
			op(limiter.OpCharge, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 1 << 40}, 1),
			limiter.Row{FullAt: 10 * s, At: 10 * s, Period: 1000, Limit: 1<<24 - 1},
			10 * s,
			limiter.Row{FullAt: 10*s + 1<<40, At: 10 * s, Period: 1 << 40, Limit: 1},
			true, 0,
		},
		{
			"a conversion does not overflow 64 bits",
			op(limiter.OpCharge, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 1 << 40}, 1),
			limiter.Row{FullAt: 10 * s, At: 10 * s, Period: 1000, Limit: 1 << 24},
			10 * s,
			limiter.Row{FullAt: 10*s + 1<<40, At: 10 * s, Period: 1 << 40, Limit: 1},
			true, 0,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			next, state := test.op.Apply(test.row, test.now)
			if next != test.next || state.Took != test.took || state.Wait != test.wait {
				t.Errorf("Apply left %+v, Took %t, Wait %d;\nwant       %+v, %t, %d", next, state.Took, state.Wait, test.next, test.took, test.wait)
			}
		})
	}
}

func TestResetOfAnUnusedKey(t *testing.T) {
	t.Parallel()
	for name, p := range samples {
		if row, s := (limiter.Op{Kind: limiter.OpReset, Policy: p}).Apply(limiter.Row{}, start); s.Took || row != (limiter.Row{}) {
			t.Errorf("%s: %+v, %+v, want that it changes nothing", name, row, s)
		}
	}
}

// The memory store is Op.Apply under a lock. It runs here so that mutants of this package meet storetest.
func TestOpApplyUnderALockIsAStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) limiter.Store { return memory.New() })
}
