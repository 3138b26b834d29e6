package rowtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
)

// This file says what the tests of the SQL stores know of each kind of policy.

func bucket(n int64, interval time.Duration) limiter.Policy {
	return limiter.TokenBucket{Capacity: n, Refill: 1, Interval: interval}
}

func window(n int64, length time.Duration) limiter.Policy {
	return limiter.FixedWindow{Limit: n, Window: length}
}

func counting(n int64, length time.Duration) limiter.Policy {
	return limiter.FixedWindow{Limit: n, Window: length, CountRejected: true}
}

func sliding(n int64, length time.Duration) limiter.Policy {
	return limiter.SlidingWindow{Limit: n, Window: length}
}

const day = 24 * time.Hour

// lasting is a window of 30 years. The next one begins in 2029.
const lasting = 262_980 * time.Hour

// Lasting are policies of all kinds under which nothing comes back while a test runs. Their argument is
// the limit.
var Lasting = map[string]func(limit int64) limiter.Policy{
	"bucket":          func(n int64) limiter.Policy { return bucket(n, time.Hour) },
	"window":          func(n int64) limiter.Policy { return window(n, lasting) },
	"counting-window": func(n int64) limiter.Policy { return counting(n, lasting) },
	"sliding":         func(n int64) limiter.Policy { return sliding(n, lasting) },
}

// policies includes pairs with the same period and pairs with the same limit. The limits have room for
// all takes of [RunMerged] together. A window of a day is as long as most days of a calendar.
var policies = append([]limiter.Policy{
	bucket(6, time.Second), bucket(6, time.Hour), bucket(7, time.Hour),
	window(6, time.Second), window(6, time.Hour), window(7, time.Hour), window(6, day),
	counting(6, time.Second), counting(6, time.Hour),
	sliding(6, 16*time.Second), sliding(6, 16*time.Hour), sliding(7, 16*time.Hour),
}, calendars...)

// others are policies that a key of the kind may have had before.
var others = map[limiter.PolicyKind][]limiter.Policy{
	limiter.KindBucket:   {bucket(6, time.Second), bucket(6, time.Hour), bucket(7, time.Second), bucket(7, time.Hour)},
	limiter.KindWindow:   otherWindows,
	limiter.KindInFlight: inFlights,
	limiter.KindSliding: {
		sliding(6, 16*time.Second), sliding(6, 16*time.Hour), sliding(7, 16*time.Second), sliding(7, 16*time.Hour), sliding(6, 10*time.Second),
	},
}

// mixedPolicies are those of [RunMixed].
var mixedPolicies = []limiter.Policy{
	bucket(3, time.Hour), window(3, time.Hour), counting(3, time.Hour), sliding(3, time.Hour),
	limiter.CalendarWindow{Limit: 3, Period: limiter.Day, Location: berlin},
	limiter.InFlight{Limit: 2, Hold: time.Minute},
}

// Used returns the cost that a row has taken, or how many leases it has, as of an instant.
func Used(kind limiter.PolicyKind, row limiter.Row, now int64) int64 {
	switch {
	case kind == limiter.KindBucket && row.Period > 0:
		return max(0, row.FullAt-now+row.Period-1) / row.Period
	case kind == limiter.KindInFlight:
		ends := rowlist.Numbers(rowlist.Part{Row: &row.List, Of: 2}.Get())
		ended, _ := slices.BinarySearch(ends, now+1)
		return int64(len(ends) - ended)
	case kind == limiter.KindSliding && row.List != "":
		sums := rowlist.Numbers(row.List)
		return sums[17] - sums[0]
	}
	return row.Used
}

// use sets the fields that takes change in a row under p, to values around every bound.
func use(r *rand.Rand, p limiter.Policy, row *limiter.Row, now int64) {
	switch limiter.KindOf(p) {
	case limiter.KindBucket:
		row.FullAt = row.At + pick(r, 0, 1, 2, 3, 4, 5, 6, 7, 250_000)*row.Period + pick(r, -1, 0, 0, 1)
	case limiter.KindWindow:
		useWindow(r, p, row)
	case limiter.KindInFlight:
		useLeases(r, row, now)
	case limiter.KindSliding:
		useSlices(r, row)
	default:
		panic("no rows of this kind")
	}
}

// maxCharge is the highest cost of a charge.
func maxCharge(p limiter.Policy) int64 {
	if b, ok := p.(limiter.TokenBucket); ok {
		return int64(30 * 365 * 24 * time.Hour / b.Step())
	}
	return math.MaxInt64
}

// useSlices sets the fields that takes change. The newest slice is that of the row's clock, or lies ahead.
func useSlices(r *rand.Rand, row *limiter.Row) {
	row.Start = row.At - row.At%row.Period + pick(r, 0, 0, 0, 0, 1, 2, 17, 40)*row.Period
	sums := make([]int64, 18)
	sum, left := pick(r, 0, 0, 0, 7, 1<<61-7, 1<<61), pick(r, 0, 1, 2, row.Limit-3, row.Limit-1, row.Limit, row.Limit, row.Limit+5, 1<<61)
	for i := range sums {
		n := left
		if i < len(sums)-1 {
			n = r.Int64N(left+1) * r.Int64N(2) * r.Int64N(2)
		}
		if sum, left = sum+n, left-n; sum >= 1<<62 {
			sum = 1<<62 - 1
		}
		sums[i] = sum
	}
	row.List = rowlist.Of(sums...)
}

// summed reports whether the sums of a row are so high that they begin anew, or are none.
func summed(row limiter.Row) bool {
	return row.List == "" || rowlist.Numbers(row.List)[17] >= 1<<61
}
