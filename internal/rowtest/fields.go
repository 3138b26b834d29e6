package rowtest

import (
	"math/rand/v2"
	"slices"
	"time"
	_ "time/tzdata" // the zones below

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
)

// zone returns a zone of the database.
func zone(name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		panic(err) // the database is part of the program
	}
	return loc
}

// berlin has days of 23 and 25 hours. In havana midnight comes twice in autumn, and not in spring.
var berlin, havana = zone("Europe/Berlin"), zone("America/Havana")

// calendars are policies whose periods have other edges, and other lengths.
var calendars = []limiter.Policy{
	limiter.CalendarWindow{Limit: 6, Period: limiter.Day, Location: havana},
	limiter.CalendarWindow{Limit: 6, Period: limiter.Month, StartDay: 31},
	limiter.CalendarWindow{Limit: 7, Period: limiter.Week, Location: berlin},
}

// otherWindows are policies that a key may have had before. Some have windows as long as those of another one,
// with the same edges or with others.
var otherWindows = slices.Concat(calendars, []limiter.Policy{
	window(6, time.Second), window(6, time.Hour), window(7, time.Hour), window(6, day), window(7, 7*day), window(6, 31*day),
	limiter.CalendarWindow{Limit: 6, Period: limiter.Day},
	limiter.CalendarWindow{Limit: 6, Period: limiter.Month},
	limiter.CalendarWindow{Limit: 6, Period: limiter.Year, Location: havana},
})

// dates are beside days of 23 and 25 hours, and the edges of months and years.
var dates = []time.Time{
	time.Date(2023, 12, 31, 12, 0, 0, 0, time.UTC),
	time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC),
	time.Date(2024, 3, 9, 12, 0, 0, 0, time.UTC),
	time.Date(2024, 3, 10, 12, 0, 0, 0, time.UTC),
	time.Date(2024, 3, 31, 0, 30, 0, 0, time.UTC),
	time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2024, 10, 27, 12, 0, 0, 0, time.UTC),
	time.Date(2024, 11, 2, 12, 0, 0, 0, time.UTC),
	time.Date(2024, 11, 3, 12, 0, 0, 0, time.UTC),
}

// anyTime returns a time of an operation: for a calendar often at an edge, or near one.
func anyTime(r *rand.Rand, p limiter.Policy) int64 {
	w, ok := p.(limiter.CalendarWindow)
	if !ok {
		return start + r.Int64N(second)*r.Int64N(2)
	}
	from, to := w.Span(dates[r.IntN(len(dates))])
	edge := from
	if r.IntN(2) == 0 {
		edge = to
	}
	return edge.UnixNano() + pick(r, 0, 0, -1, 1, -second, -3600*second, r.Int64N(to.UnixNano()-from.UnixNano()))
}

// windowOf returns the window of a policy that t is in, as an empty row.
func windowOf(p limiter.Policy, t int64) limiter.Row {
	_, s := limiter.Op{Kind: limiter.OpLook, Policy: p}.Apply(limiter.Row{}, t)
	return s.Row
}

// current reports whether op takes from the window at its clock, and row has that window or an ended one. Any
// policy may have written an ended one. The row's clock must not be later than its window.
func current(op *limiter.Op, row, taken limiter.Row) bool {
	now := windowOf(op.Policy, op.At)
	if taken.Start != now.Start || row.At > row.Start+row.Period-1 {
		return false
	}
	return row.Start+row.Period <= now.Start || row.Start == now.Start && row.Period == now.Period && row.Limit == now.Limit
}

// waitsBeyond reports whether op may wait for the window after the one that its clock is in.
func waitsBeyond(op *limiter.Op) bool {
	now := windowOf(op.Policy, op.At)
	return op.At+int64(op.MaxWait) >= now.Start+now.Period
}

// useWindow sets the fields that takes change, to values around every bound.
func useWindow(r *rand.Rand, p limiter.Policy, row *limiter.Row) {
	at := row.At
	for range pick(r, 0, 0, 0, 1, 2) {
		w := windowOf(p, at)
		at = w.Start + w.Period
	}
	// No operation leaves a row whose clock is after its window, but a statement for a calendar allows for one.
	if c, ok := p.(limiter.CalendarWindow); ok && c.Location != nil && r.IntN(8) == 0 {
		at = windowOf(p, row.At).Start - 1
	}
	w := windowOf(p, at)
	row.Start, row.Period = w.Start+pick(r, 0, 0, 0, 0, 0, 0, 0, 1800*second), w.Period // with other edges
	row.Used = pick(r, 0, 1, 2, row.Limit-3, row.Limit-1, row.Limit, row.Limit, row.Limit+5, 1<<62, 1<<62-1)
}

// inFlights are policies of leases. A hold changes nothing in a row, so it differs with each operation.
var inFlights = []limiter.Policy{
	limiter.InFlight{Limit: 1, Hold: time.Minute},
	limiter.InFlight{Limit: 3, Hold: time.Minute},
}

// ends are the times after the clock at which leases of [useLeases] end.
var ends = []int64{
	-3600 * second, -second, -1, 0, 1, second - 1, second, second + 1, 60 * second,
	int64(limiter.MaxHold), int64(limiter.MaxHold + limiter.ClockTolerance), int64(limiter.MaxHold+limiter.ClockTolerance) + 1, 100 * 24 * 3600 * second,
}

// useLeases sets the leases of a row, with ids from 1 on in any order. They end around every bound.
func useLeases(r *rand.Rand, row *limiter.Row, now int64) {
	held := make([]int64, r.IntN(7))
	ids := r.Perm(len(held))
	numbers := make([]int64, 0, 2*len(held))
	for i := range held {
		held[i] = now + pick(r, ends...)
	}
	slices.Sort(held)
	numbers = append(numbers, held...)
	for _, id := range ids {
		numbers = append(numbers, int64(id+1))
	}
	row.List = rowlist.Of(numbers...)
}

// leaseOp makes op an operation on a lease.
func leaseOp(r *rand.Rand, op *limiter.Op) {
	op.ID = pick(r, 1, 2, 3, 4, 1<<63-1)
	op.Hold = time.Duration(pick(r, int64(time.Millisecond), second, second-1, 60*second, int64(limiter.MaxHold)))
}
