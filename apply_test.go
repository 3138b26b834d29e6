package limiter_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
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
	moved.Start, moved.At = 80*s, 85*s
	ahead := limiter.Row{FullAt: 100 * s, At: 10*s + int64(limiter.ClockTolerance), Period: s, Limit: 500}
	stepped := ahead
	stepped.At++
	anchored := stepped
	anchored.FullAt, anchored.At = ahead.FullAt+10*s-stepped.At, 10*s
	booked := limiter.State{Row: limiter.Row{FullAt: 100 * s, At: 40 * s, Period: s, Limit: 10}, Now: 90 * s}
	march := limiter.Row{Start: time.Date(2023, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano(), Used: 50, Period: 31 * 86_400 * s, Limit: 100}
	march.At = march.Start + 10*s
	perMicrosecond := limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 1001}
	for _, test := range []struct {
		name string
		op   limiter.Op
		row  limiter.Row
		now  int64
		next limiter.Row
		took bool
		wait int64
	}{
		{"a reset finds no window", limiter.Op{Kind: limiter.OpReset, Policy: window(5, 10)}, limiter.Row{}, s, limiter.Row{}, false, 0},
		{
			"a reset of a window leaves only its policy",
			limiter.Op{Kind: limiter.OpReset, Policy: window(5, 10)},
			row(100, 3, 105, 10, 5), 106 * s,
			limiter.Row{Period: 10 * s, Limit: 5},
			true, 0,
		},
		{
			"a block moves back by whole windows with the clock",
			limiter.Op{Kind: limiter.OpCharge, Policy: window(5, 10), Cost: 1},
			blocked, 85 * s, moved, false, 0,
		},
		{
			"a window that ran longer is full where its start is not ahead",
			limiter.Op{Kind: limiter.OpCharge, Policy: window(5, 10), Cost: 1},
			row(101, 1, 100, 1, 5), 100 * s, row(100, 6, 100, 10, 5), false, 0,
		},
		{
			"a charge with an older clock keeps the row's clock",
			limiter.Op{Kind: limiter.OpCharge, Policy: window(5, 10), Cost: 1},
			row(110, 3, 111, 10, 5), 109 * s, row(110, 4, 111, 10, 5), true, 0,
		},
		{
			"a block with an older clock keeps the row's clock",
			limiter.Op{Kind: limiter.OpBlock, Policy: window(5, 10), Cost: 1},
			row(110, 3, 111, 10, 5), 109 * s, row(110, 1<<62, 111, 10, 5), true, 0,
		},
		{
			"a look does not write that the clock was set back into a shorter month",
			limiter.Op{Kind: limiter.OpLook, Policy: limiter.CalendarWindow{Limit: 100, Period: limiter.Month}, Cost: 1},
			march, march.Start - 5*s, march, false, 0,
		},
		{
			"a refusal waits for the row's own window beyond the next one",
			limiter.Op{Kind: limiter.OpTake, Policy: window(5, 10), Cost: 1},
			row(7, 5, 8, 7, 5), 8 * s, row(7, 5, 8, 7, 5), false, 6 * s,
		},
		{
			"a refusal that converts the row sets no Wait",
			limiter.Op{Kind: limiter.OpTake, Policy: window(5, 10), Cost: 1},
			row(60, 5, 61, 60, 5), 65 * s, row(60, 5, 65, 10, 5), false, 0,
		},
		{
			"a look at more than the old bucket holds writes the converted row",
			limiter.Op{Kind: limiter.OpLook, Policy: limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Second}, Cost: 2},
			limiter.Row{FullAt: 106 * s, At: 100 * s, Period: s, Limit: 1},
			103 * s,
			limiter.Row{FullAt: 110 * s, At: 103 * s, Period: s, Limit: 5},
			false, 0,
		},
		{
			"a cancel needs the booking's window length",
			limiter.Op{Kind: limiter.OpCancel, Policy: window(5, 10), Cost: 1, Booked: limiter.State{Row: row(100, 1, 95, 10, 5), Now: 95 * s}},
			row(100, 1, 95, 20, 5), 95 * s, row(100, 1, 95, 20, 5), false, 0,
		},
		{
			"a cancel needs the booking's step",
			limiter.Op{Kind: limiter.OpCancel, Policy: limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second}, Cost: 1, Booked: booked},
			limiter.Row{FullAt: 100 * s, At: 40 * s, Period: 2 * s, Limit: 10},
			40 * s,
			limiter.Row{FullAt: 100 * s, At: 40 * s, Period: 2 * s, Limit: 10},
			false, 0,
		},
		{
			"a clock that is behind by the tolerance was not stepped",
			limiter.Op{Kind: limiter.OpTake, Policy: limiter.TokenBucket{Capacity: 500, Refill: 1, Interval: time.Second}, Cost: 500},
			ahead, 10 * s, ahead, false, 0,
		},
		{
			"a clock behind by 1 ns more was stepped back",
			limiter.Op{Kind: limiter.OpCharge, Policy: limiter.TokenBucket{Capacity: 500, Refill: 1, Interval: time.Second}, Cost: 1},
			stepped, 10 * s,
			limiter.Row{FullAt: anchored.FullAt + s, At: 10 * s, Period: s, Limit: 500},
			true, 0,
		},
		{
			"a wait in the row's time is rounded up",
			limiter.Op{Kind: limiter.OpTake, Policy: perMicrosecond, Cost: 1, MaxWait: 1},
			limiter.Row{FullAt: 10*s + 5000, At: 10 * s, Period: 1000, Limit: 5},
			10 * s,
			limiter.Row{FullAt: 10*s + 5000, At: 10 * s, Period: 1000, Limit: 5},
			false, 1000,
		},
		{
			"a conversion does not overflow 64 bits",
			limiter.Op{Kind: limiter.OpCharge, Policy: limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 1 << 40}, Cost: 1},
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

// refusingStore refuses everything with a state of its own.
type refusingStore struct{ state limiter.State }

func (s refusingStore) Do(context.Context, limiter.Op) (limiter.State, error) { return s.state, nil }

func TestRetryAfterOfARefusal(t *testing.T) {
	t.Parallel()
	now := int64(time.Hour)
	for _, test := range []struct {
		name  string
		state limiter.State
		want  time.Duration
	}{
		{"1 µs if the row has room", limiter.State{Now: now}, time.Microsecond},
		{"rounded up to the next tick", limiter.State{Now: now, Tick: 2, Wait: 2001}, 2002},
		{"a multiple of the tick stays", limiter.State{Now: now, Tick: 2, Wait: 2002}, 2002},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, err := limiter.New(refusingStore{test.state}, "l", limiter.PerSecond(5))
			must(t, err)
			r, err := l.Allow(t.Context(), "key")
			if err != nil || r.Allowed || r.RetryAfter != test.want {
				t.Errorf("Allow = %+v, %v; want a refusal with RetryAfter %v", r, err, test.want)
			}
		})
	}
}

// The clock must be between 1970 and 2079: see Op.Clock.
func TestClockOutOfRange(t *testing.T) {
	t.Parallel()
	last := (1<<62 - 1<<60 - int64(time.Hour)) / int64(time.Second)
	for _, test := range []struct {
		name  string
		unix  int64
		valid bool
	}{
		{"one second before the end", last - 1, true},
		{"the end", last, false},
		{"one second before 1970", -1, false},
		{"where nanoseconds overflow to a valid time", math.MinInt64/int64(time.Second) - 1e9, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(test.unix, 0)
			l, err := limiter.New(memory.New(), "l", limiter.PerSecond(5), limiter.WithClock(func() time.Time { return now }))
			must(t, err)
			if _, err := l.Allow(t.Context(), "key"); (err == nil) != test.valid {
				t.Errorf("Allow at %v: %v; want valid %t", now.UTC(), err, test.valid)
			}
		})
	}
}

func TestOpKindString(t *testing.T) {
	t.Parallel()
	want := []string{"operation(0)", "take", "look", "refund", "cancel", "reset", "take_up_to", "charge", "block", "acquire", "release", "extend", "operation(12)"}
	for k, name := range want {
		if got := limiter.OpKind(k).String(); got != name {
			t.Errorf("OpKind(%d).String() = %q, want %q", k, got, name)
		}
	}
}
