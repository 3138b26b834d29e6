// Package kinds has what the tests of prove know of each kind of policy: the policies that they draw
// from, and how rows and bounds of the kind look. Packages steps and history have the bounds themselves.
package kinds

import (
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/prove/internal/steps"
)

// Named is a policy, and the name of its limiter.
type Named struct {
	Name   string
	Policy limiter.Policy
}

// Lasting are policies under which nothing comes back while a test runs, unless the year ends. Of each kind,
// one is never used up, so that every lost take shows. The other is soon used up, so that every take too many
// shows. The first is a bucket.
var Lasting = []Named{
	{"roomy-bucket", limiter.TokenBucket{Capacity: 1 << 20, Refill: 1, Interval: 15 * time.Minute}},
	{"tight-bucket", limiter.TokenBucket{Capacity: 300, Refill: 1, Interval: 800 * time.Hour}},
	{"roomy-window", limiter.FixedWindow{Limit: 1 << 40, Window: 262_980 * time.Hour}},
	{"tight-window", limiter.FixedWindow{Limit: 300, Window: 262_980 * time.Hour}},
	{"roomy-sliding-window", limiter.SlidingWindow{Limit: 1 << 40, Window: 262_980 * time.Hour}},
	{"tight-sliding-window", limiter.SlidingWindow{Limit: 300, Window: 262_980 * time.Hour}},
	{"roomy-calendar", limiter.CalendarWindow{Limit: 1 << 40, Period: limiter.Year}},
	{"tight-calendar", limiter.CalendarWindow{Limit: 300, Period: limiter.Year}},
}

// Clocked are policies that a clock moves: what they owe lasts from less than a second to years.
var Clocked = []Named{
	{"bucket-of-0.4s", limiter.TokenBucket{Capacity: 20, Refill: 50, Interval: time.Second}},
	{"bucket-of-8m", limiter.TokenBucket{Capacity: 50, Refill: 1, Interval: 10 * time.Second}},
	{"bucket-of-4y", limiter.TokenBucket{Capacity: 50, Refill: 1, Interval: 30 * 24 * time.Hour}},
	{"window-of-1s", limiter.FixedWindow{Limit: 30, Window: time.Second}},
	{"window-of-1h", limiter.FixedWindow{Limit: 30, Window: time.Hour}},
	{"window-of-30d", limiter.FixedWindow{Limit: 30, Window: 30 * 24 * time.Hour}},
	{"calendar-of-days", limiter.CalendarWindow{Limit: 30, Period: limiter.Day}},
	{"sliding-window-of-0.9s", limiter.SlidingWindow{Limit: 30, Window: 900 * time.Millisecond}},
	{"sliding-window-of-1h", limiter.SlidingWindow{Limit: 30, Window: time.Hour}},
	{"sliding-window-of-30d", limiter.SlidingWindow{Limit: 30, Window: 30 * 24 * time.Hour}},
	{"counting-window-of-1h", limiter.FixedWindow{Limit: 30, Window: time.Hour, CountRejected: true}},
}

// Spec is one limiter of a history.
type Spec struct {
	Name      string
	Policies  []limiter.Policy // two if two versions of the application run at the same time
	GivesBack bool             // refunds and resets happen
	Reserves  bool             // reservations and cancels happen
	Denies    bool             // the Limiters keep refusals in memory
}

// Workload are the limiters of package workload, all on one store. Their policies are such that a busy
// key has some of its requests granted and some refused.
var Workload = []Spec{
	{Name: "bucket", Denies: true, Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 40, Refill: 1, Interval: 5 * time.Millisecond},
	}},
	{Name: "window", Denies: true, Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 60, Window: 200 * time.Millisecond},
	}},
	{Name: "asked-always", Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 30, Refill: 2, Interval: 5 * time.Millisecond},
	}},
	{Name: "counted", Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 50, Window: 160 * time.Millisecond, CountRejected: true},
	}},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 25, Refill: 1, Interval: 5 * time.Millisecond},
	}},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 30, Window: 120 * time.Millisecond},
	}},
	{Name: "changed", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 20, Refill: 2, Interval: 5 * time.Millisecond},
		limiter.TokenBucket{Capacity: 35, Refill: 1, Interval: 5 * time.Millisecond},
	}},
	{Name: "changed", GivesBack: true, Reserves: true, Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 50, Window: 120 * time.Millisecond},
		limiter.FixedWindow{Limit: 90, Window: 180 * time.Millisecond},
	}},
	{Name: "sliding", Denies: true, Policies: []limiter.Policy{
		limiter.SlidingWindow{Limit: 60, Window: 200 * time.Millisecond},
	}},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.SlidingWindow{Limit: 30, Window: 120 * time.Millisecond},
	}},
	{Name: "changed", GivesBack: true, Reserves: true, Policies: []limiter.Policy{
		limiter.SlidingWindow{Limit: 50, Window: 120 * time.Millisecond},
		limiter.SlidingWindow{Limit: 90, Window: 180 * time.Millisecond},
	}},
	{Name: "calendar", GivesBack: true, Reserves: true, Policies: []limiter.Policy{
		limiter.CalendarWindow{Limit: 300, Period: limiter.Month, StartDay: 31},
		limiter.FixedWindow{Limit: 60, Window: 150 * time.Millisecond},
	}},
}

// Policies returns all policies of Workload.
func Policies() (all []limiter.Policy) {
	for _, s := range Workload {
		all = append(all, s.Policies...)
	}
	return all
}

// Made are the limiters of the made-up histories with which package history is tested.
var Made = []Spec{
	{Name: "bucket", Policies: []limiter.Policy{bucketOf10}},
	{Name: "window", Policies: []limiter.Policy{windowOf10}},
	{Name: "counted", Policies: []limiter.Policy{limiter.FixedWindow{Limit: 10, Window: 20 * time.Millisecond, CountRejected: true}}},
	{Name: "bucket with refunds", GivesBack: true, Policies: []limiter.Policy{bucketOf10}},
	{Name: "sliding window", Policies: []limiter.Policy{limiter.SlidingWindow{Limit: 10, Window: 20 * time.Millisecond}}},
	{Name: "window with refunds", GivesBack: true, Policies: []limiter.Policy{windowOf10}},
	{Name: "bucket of two policies", Policies: []limiter.Policy{bucketOf10, bucketOf25}},
	{Name: "bucket of two policies with refunds", GivesBack: true, Policies: []limiter.Policy{bucketOf10, bucketOf25}},
	{Name: "window of two policies", GivesBack: true, Policies: []limiter.Policy{
		windowOf10, limiter.FixedWindow{Limit: 15, Window: 45 * time.Millisecond},
	}},
}

var (
	bucketOf10 = limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Millisecond}
	bucketOf25 = limiter.TokenBucket{Capacity: 25, Refill: 1, Interval: 2 * time.Millisecond}
	windowOf10 = limiter.FixedWindow{Limit: 10, Window: 20 * time.Millisecond}
)

// Bounds returns what a policy admits while a clock makes steps.
func Bounds(p limiter.Policy) steps.Bounds {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return steps.Bucket(p)
	case limiter.FixedWindow:
		return steps.Window(p)
	case limiter.SlidingWindow:
		return steps.Sliding(p)
	case limiter.CalendarWindow:
		if p.Period == limiter.Day && p.Location == nil { // the windows of 24 hours begin with the days of UTC
			return steps.Window{Limit: p.Limit, Window: 24 * time.Hour}
		}
	}
	panic(fmt.Sprintf("no bounds of a %T", p))
}

// Lockout returns how long a key can be refused at most.
func Lockout(p limiter.Policy) time.Duration {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return time.Duration(p.Capacity) * p.Step()
	case limiter.FixedWindow:
		return p.Window
	case limiter.SlidingWindow:
		return p.Window + p.Slice()
	case limiter.CalendarWindow:
		return 366 * 24 * time.Hour // the longest year
	}
	panic(fmt.Sprintf("no lockout of a %T", p))
}

// Bookable returns how far ahead reservations are made: as far as a full bucket lasts, or two windows.
func Bookable(p limiter.Policy) time.Duration {
	if limiter.KindOf(p) != limiter.KindBucket {
		return min(2*Lockout(p), limiter.MaxReserve)
	}
	return Lockout(p)
}

// Limit returns the highest cost that can pass.
func Limit(p limiter.Policy) int64 {
	return rowtest.TableOf(p).Numbers(&limiter.Op{Policy: p}, 0).Limit
}

// Spend changes a row by takes of a cost in all, whether or not it has room.
func Spend(p limiter.Policy, row *limiter.Row, cost int64) {
	t := rowtest.TableOf(p)
	t.Add(row, t.Numbers(&limiter.Op{Policy: p, Cost: cost}, 0).Cost)
}

// Unblock makes of the row of a block one in which a take of 1 has passed before the block is over.
func Unblock(p limiter.Policy, row *limiter.Row) {
	if limiter.KindOf(p) == limiter.KindWindow {
		row.Used = 0
	}
	if limiter.KindOf(p) == limiter.KindSliding {
		row.Start -= row.Period
	}
	Spend(p, row, 1)
}
