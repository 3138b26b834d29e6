// Package kinds has the policies that the tests of prove draw from, and how rows of each kind look.
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

// Workload are the limiters of package workload, on one store. A busy key is granted some requests and refused some.
var Workload = []Spec{
	{Name: "bucket", Denies: true, Policies: of(bucket(40, 1, 5))},
	{Name: "window", Denies: true, Policies: of(window(60, 200))},
	{Name: "asked-always", Policies: of(bucket(30, 2, 5))},
	{Name: "counted", Policies: of(limiter.FixedWindow{Limit: 50, Window: 160 * time.Millisecond, CountRejected: true})},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: of(bucket(25, 1, 5))},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: of(window(30, 120))},
	{Name: "changed", GivesBack: true, Reserves: true, Denies: true, Policies: of(bucket(20, 2, 5), bucket(35, 1, 5))},
	{Name: "changed", GivesBack: true, Reserves: true, Policies: of(window(50, 120), window(90, 180))},
	{Name: "sliding", Denies: true, Policies: of(sliding(60, 200))},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: of(sliding(30, 120))},
	{Name: "changed", GivesBack: true, Reserves: true, Policies: of(sliding(50, 120), sliding(90, 180))},
	{Name: "calendar", GivesBack: true, Reserves: true, Policies: of(
		limiter.CalendarWindow{Limit: 300, Period: limiter.Month, StartDay: 31}, window(60, 150))},
}

func of(all ...limiter.Policy) []limiter.Policy { return all }

// bucket, window and sliding are policies with times in milliseconds.
func bucket(capacity, refill, interval int64) limiter.Policy {
	return limiter.TokenBucket{Capacity: capacity, Refill: refill, Interval: time.Duration(interval) * time.Millisecond}
}

func window(limit, length int64) limiter.Policy {
	return limiter.FixedWindow{Limit: limit, Window: time.Duration(length) * time.Millisecond}
}

func sliding(limit, length int64) limiter.Policy {
	return limiter.SlidingWindow{Limit: limit, Window: time.Duration(length) * time.Millisecond}
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
	{Name: "bucket", Policies: of(bucket(10, 1, 1))},
	{Name: "window", Policies: of(window(10, 20))},
	{Name: "counted", Policies: of(limiter.FixedWindow{Limit: 10, Window: 20 * time.Millisecond, CountRejected: true})},
	{Name: "bucket with refunds", GivesBack: true, Policies: of(bucket(10, 1, 1))},
	{Name: "sliding window", Policies: of(sliding(10, 20))},
	{Name: "window with refunds", GivesBack: true, Policies: of(window(10, 20))},
	{Name: "sliding window with refunds", GivesBack: true, Policies: of(sliding(10, 20))},
	{Name: "bucket of two policies", Policies: of(bucket(10, 1, 1), bucket(25, 1, 2))},
	{Name: "bucket of two policies with refunds", GivesBack: true, Policies: of(bucket(10, 1, 1), bucket(25, 1, 2))},
	{Name: "window of two policies", GivesBack: true, Policies: of(window(10, 20), window(15, 45))},
}

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
