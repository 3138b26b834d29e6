package storetest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
)

// This file says what the tests know of each kind of policy.

// bucket is the bucket of most cases: n tokens, and one comes back each step.
func bucket(n int64, step time.Duration) limiter.TokenBucket {
	return limiter.TokenBucket{Capacity: n, Refill: 1, Interval: step}
}

func window(n int64, d time.Duration) limiter.FixedWindow {
	return limiter.FixedWindow{Limit: n, Window: d}
}

// counting is a window that counts refusals.
func counting(n int64, d time.Duration) limiter.FixedWindow {
	return limiter.FixedWindow{Limit: n, Window: d, CountRejected: true}
}

func sliding(n int64, d time.Duration) limiter.SlidingWindow {
	return limiter.SlidingWindow{Limit: n, Window: d}
}

// plain returns policies of each kind with a limit of n, under which a refusal writes nothing. A bucket
// gets a token back each step, and other kinds count for span.
func plain(n int64, step, span time.Duration) map[string]limiter.Policy {
	return map[string]limiter.Policy{"b": bucket(n, step), "w": window(n, span), "s": sliding(n, span)}
}

// every returns the policies of plain and those that count refusals.
func every(n int64, step, span time.Duration) map[string]limiter.Policy {
	all := plain(n, step, span)
	maps.Copy(all, map[string]limiter.Policy{"c": counting(n, span)})
	return all
}

// windows returns windows that do not count refusals, and that do.
func windows(n int64, d time.Duration) map[string]limiter.Policy {
	return map[string]limiter.Policy{"w": window(n, d), "c": counting(n, d)}
}

// plainPolicies are policies under which a refusal writes nothing.
var plainPolicies = map[string]limiter.Policy{
	"bucket":  bucket(5, s),
	"uneven":  limiter.TokenBucket{Capacity: 6, Refill: 7, Interval: 5 * s},
	"window":  window(4, 3*s),
	"sliding": sliding(4, 3*s),
}

var allPolicies = map[string]limiter.Policy{
	"bucket":  bucket(5, s),
	"window":  window(4, 3*s),
	"counts":  counting(4, 3*s),
	"sliding": sliding(4, 3*s),
}

// sharedPolicies are the policies of the rows that takes share, by their kind. Those that count refusals
// are for single operations only, and come last.
var sharedPolicies = [][]limiter.Policy{
	{
		limiter.TokenBucket{Capacity: 9, Refill: 3, Interval: s},
		limiter.TokenBucket{Capacity: 12, Refill: 2, Interval: 3 * s},
		limiter.TokenBucket{Capacity: 9, Refill: 1, Interval: time.Minute},
	},
	{window(9, 3*s), window(5, 3*s), window(12, 10*s), daily(40), counting(9, 3*s)},
	{sliding(9, 3*s), sliding(5, 3*s), sliding(12, 10*s)},
}

// differentials are the histories that a store has in common with the memory store. Their policies
// alternate.
var differentials = []struct {
	name     string
	n        int // of operations
	policies []limiter.Policy
}{
	{"random operations on buckets", 500, []limiter.Policy{
		limiter.TokenBucket{Capacity: 5, Refill: 3, Interval: s},
		limiter.TokenBucket{Capacity: 12, Refill: 2, Interval: 3 * s},
		bucket(5, time.Minute),
	}},
	{"random operations on windows", 500, []limiter.Policy{window(5, 3*s), window(3, 3*s), window(7, 10*s)}},
	{"random operations on windows and days", 500, []limiter.Policy{daily(5), window(3, 3*s), daily(7), window(7, day)}},
	{"random operations on sliding windows", 500, []limiter.Policy{sliding(5, 3*s), sliding(3, 3*s), sliding(7, 10*s)}},
	{"random operations on windows that count refusals", 300, []limiter.Policy{window(5, 3*s), counting(4, 3*s), counting(9, 10*s)}},
}

// steppedPolicies are policies of a limit of 2, for a clock that was an hour ahead.
var steppedPolicies = []struct {
	name   string
	policy limiter.Policy
	owed   time.Duration // the longest that a key which took all of it is locked out
}{
	{"bucket", bucket(2, 10*time.Minute), 10 * time.Minute},
	{"window shorter than the step", window(2, 10*time.Minute), 10 * time.Minute},
	{"window as long as the step", window(2, time.Hour), time.Hour},
	{"window longer than the step", window(2, 25*time.Hour), 25 * time.Hour},
	{"window that counts refusals", counting(2, time.Hour), time.Hour},
	{"sliding window shorter than the step", sliding(2, 16*time.Minute), 17 * time.Minute},
	{"sliding window longer than the step", sliding(2, 16*time.Hour), 17 * time.Hour},
}

// ownCases are the groups whose cases are about one kind each.
var ownCases = []group{
	{"refill", refillCases},
	{"windows", slices.Concat(windowCases, calendarCases)},
	{"policy changes", policyCases},
}

func limitOf(p limiter.Policy) int64 {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return p.Capacity
	case limiter.FixedWindow:
		return p.Limit
	case limiter.CalendarWindow:
		return p.Limit
	case limiter.InFlight:
		return 1
	case limiter.SlidingWindow:
		return p.Limit
	}
	panic(fmt.Sprintf("no limit of a %T", p))
}

// countedIn returns what a row has taken, as of an instant. All of it counts then.
func countedIn(p limiter.Policy, row limiter.Row, now int64) int64 {
	if b, ok := p.(limiter.TokenBucket); ok {
		return max(0, row.FullAt-now) / int64(b.Step())
	}
	if row.List != "" {
		sum := func(at int) int64 { return int64(binary.BigEndian.Uint64([]byte(row.List[at:]))) }
		return sum(len(row.List)-8) - sum(0)
	}
	return row.Used
}

// vectorPolicy is the policy of a history in vectors.jsonl.
type vectorPolicy struct {
	Kind          string        `json:"kind"`
	Capacity      int64         `json:"capacity"`
	Refill        int64         `json:"refill"`
	Interval      time.Duration `json:"interval"`
	Limit         int64         `json:"limit"`
	Window        time.Duration `json:"window"`
	CountRejected bool          `json:"count_rejected"`
}

func (p vectorPolicy) policy() limiter.Policy {
	if p.Kind == "token_bucket" {
		return limiter.TokenBucket{Capacity: p.Capacity, Refill: p.Refill, Interval: p.Interval}
	}
	return limiter.FixedWindow{Limit: p.Limit, Window: p.Window, CountRejected: p.CountRejected}
}
