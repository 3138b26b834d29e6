package limiter_test

import (
	"archive/zip"
	"flag"
	"go/build"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

var everyZone = flag.Bool("every-zone", false, "TestSpanIsAPartition looks at every zone, for minutes, and not only at some")

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	must(t, err)
	return loc
}

func TestSpan(t *testing.T) {
	t.Parallel()
	const day, week, month, year = limiter.Day, limiter.Week, limiter.Month, limiter.Year
	for _, c := range []struct {
		name           string
		period         limiter.Period
		startDay       int
		zone           string
		at, start, end string
	}{
		{"day", day, 0, "UTC", "2024-02-29T23:59:59.999999999Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"day of 23 hours", day, 0, "Europe/Berlin", "2024-03-31T12:00:00Z", "2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		{"midnight comes twice", day, 0, "America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"a date left out", day, 0, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"Sunday", week, 0, "UTC", "2025-01-05T23:59:59Z", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z"},
		{"month", month, 0, "Asia/Tokyo", "2024-01-31T15:00:00Z", "2024-02-01T00:00:00+09:00", "2024-03-01T00:00:00+09:00"},
		{"from day 31, in February", month, 31, "UTC", "2023-02-28T00:00:00Z", "2023-02-28T00:00:00Z", "2023-03-31T00:00:00Z"},
		{"year", year, 0, "America/New_York", "2024-01-01T04:59:59Z", "2023-01-01T00:00:00-05:00", "2024-01-01T00:00:00-05:00"},
		{"first year", year, 0, "UTC", "0001-06-01T00:00:00Z", "0001-01-01T00:00:00Z", "0002-01-01T00:00:00Z"},
		{"last year", month, 31, "Europe/Berlin", "9999-12-31T12:00:00Z", "9999-12-31T00:00:00+01:00", "10000-01-31T00:00:00+01:00"},
	} {
		loc := zone(t, c.zone)
		w := limiter.CalendarWindow{Limit: 1, Period: c.period, StartDay: c.startDay, Location: loc}
		at, err := time.Parse(time.RFC3339Nano, c.at)
		must(t, err)
		for _, at := range []time.Time{at, at.In(zone(t, "Asia/Kolkata"))} {
			start, end := w.Span(at)
			got := start.Format(time.RFC3339Nano) + " " + end.Format(time.RFC3339Nano)
			testenv.Equal(t, got, c.start+" "+c.end, c.name, at)
			if start.Location() != loc || end.Location() != loc {
				t.Errorf("%s: in %v and %v, want %v", c.name, start.Location(), end.Location(), loc)
			}
		}
	}
	for _, w := range []limiter.CalendarWindow{{}, {Limit: 1}, {Limit: 1, Period: week, StartDay: 1}, {Limit: 1, Period: day, Location: time.Local}} {
		if start, end := w.Span(time.Now()); !start.IsZero() || !end.IsZero() {
			t.Errorf("%+v, which is not valid: %v to %v, want none", w, start, end)
		}
	}
}

// oddZones left dates out, or changed their clocks at or around midnight.
var oddZones = []string{
	"Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "America/Asuncion", "America/Havana", "America/Juneau", "America/Sao_Paulo",
	"America/Scoresbysund", "America/St_Johns", "America/Toronto", "Antarctica/Troll", "Asia/Amman", "Asia/Gaza", "Asia/Manila", "Asia/Tehran",
	"Australia/Lord_Howe", "Europe/Dublin", "Pacific/Apia", "Pacific/Enderbury", "Pacific/Kwajalein",
}

func TestSpanIsAPartition(t *testing.T) {
	t.Parallel()
	from, until := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2079, 1, 1, 0, 0, 0, 0, time.UTC)
	names := zoneNames(t)
	if !*everyZone {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = append(names[:min(len(names), 5)], oddZones...)
		until = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if testing.Short() {
		from = time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			for _, w := range []limiter.CalendarWindow{
				{Period: limiter.Day},
				{Period: limiter.Week},
				{Period: limiter.Month},
				{Period: limiter.Month, StartDay: 31},
				{Period: limiter.Month, StartDay: 29},
				{Period: limiter.Month, StartDay: 2 + rand.IntN(29)},
				{Period: limiter.Year},
			} {
				w.Limit, w.Location = 1, loc
				checkPartition(t, w, from, until)
			}
		})
	}
}

// checkPartition checks that each period begins at the first instant whose date is its first date or a later
// one, and that the next one begins where it ends.
func checkPartition(t *testing.T, w limiter.CalendarWindow, from, until time.Time) {
	t.Helper()
	shortest, longest := 21*time.Hour, 27*time.Hour
	if w.Location.String() == "Antarctica/Vostok" { // the station moved its clocks by 7 hours in 1994
		shortest, longest = 17*time.Hour, 31*time.Hour
	}
	start, end := w.Span(from)
	for start.Before(until) {
		first := firstDate(w, dateOf(start))
		last := latestDate(start, end)
		switch d := end.Sub(start); {
		case w.Period == limiter.Day && (d < shortest || d > longest):
			t.Fatalf("%v: the day from %v lasts %v", w, start, d)
		case !latestDate(start.Add(-72*time.Hour), start).Before(first):
			t.Fatalf("%v: %v is not the first instant of %v", w, start, first)
		case firstDate(w, last) != first:
			t.Fatalf("%v: the period from %v to %v has the dates %v to %v", w, start, end, first, last)
		}
		for _, at := range []time.Time{start, end.Add(-1), start.Add(rand.N(end.Sub(start)))} {
			if s, e := w.Span(at); !s.Equal(start) || !e.Equal(end) {
				t.Fatalf("%v: Span(%v) = %v, %v; want %v, %v", w, at, s, e, start, end)
			}
		}
		next, after := w.Span(end)
		if !next.Equal(end) {
			t.Fatalf("%v: after %v to %v comes the period from %v", w, start, end, next)
		}
		start, end = next, after
	}
}

// dateOf returns the local date of an instant.
func dateOf(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// latestDate returns the latest local date from one instant to before another one. The local time is the
// latest at the end of each offset.
func latestDate(from, to time.Time) (latest time.Time) {
	for at := to; at.After(from); {
		if date := dateOf(at.Add(-1)); date.After(latest) {
			latest = date
		}
		if at, _ = at.Add(-1).ZoneBounds(); at.IsZero() {
			break
		}
	}
	return latest
}

// firstDate returns the first date of the period that a date is in.
func firstDate(w limiter.CalendarWindow, date time.Time) time.Time {
	for !isFirst(w, date) {
		date = date.AddDate(0, 0, -1)
	}
	return date
}

func isFirst(w limiter.CalendarWindow, date time.Time) bool {
	switch w.Period {
	case limiter.Week:
		return date.Weekday() == time.Monday
	case limiter.Month:
		lastDay := date.AddDate(0, 0, 1).Day() == 1
		return date.Day() == max(1, w.StartDay) || lastDay && date.Day() < w.StartDay
	case limiter.Year:
		return date.YearDay() == 1
	}
	return true
}

// zoneNames returns the names of all zones that Go has.
func zoneNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Logf("only the zones of this file: %v", err)
		return nil
	}
	defer func() { _ = files.Close() }()
	for _, f := range files.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestEqualCalendars(t *testing.T) {
	t.Parallel()
	given := limiter.CalendarWindow{Limit: 1, Period: limiter.Month, StartDay: 1, Location: time.UTC}
	want := limiter.Policy(limiter.CalendarWindow{Limit: 1, Period: limiter.Month})
	choose := (&plans{policy: given}).option()
	for name, l := range map[string]*limiter.Limiter{
		"New":           newLimiter(t, memory.New(), given, limiter.WithDenyCache(10, time.Hour)),
		"WithPolicyFor": newLimiter(t, memory.New(), limiter.FixedWindow{Limit: 1, Window: time.Hour}, choose, limiter.WithDenyCache(10, time.Hour)),
	} {
		for i, source := range []limiter.Source{limiter.SourceStore, limiter.SourceStore, limiter.SourceDenyCache} {
			r, err := l.Allow(t.Context(), "k")
			if err != nil || r.Policy != want || r.Allowed != (i == 0) || r.Source != source {
				t.Errorf("%s, call %d: %+v, %v; want %v by %v", name, i, r, err, want, source)
			}
		}
		if name == "New" && l.Policy() != want {
			t.Errorf("Policy = %v, want %v", l.Policy(), want)
		}
	}
}

// Two Locations of one zone are two policies with the same rows.
func TestCalendarLocationLoadedTwice(t *testing.T) {
	t.Parallel()
	store := memory.New()
	of := func() *limiter.Limiter {
		return newLimiter(t, store, limiter.CalendarWindow{Limit: 3, Period: limiter.Year, Location: zone(t, "Europe/Berlin")}, limiter.WithDenyCache(10, time.Hour))
	}
	a, b := of(), of()
	for i, l := range []*limiter.Limiter{a, b, a} {
		if r, err := l.Allow(t.Context(), "k"); err != nil || !r.Allowed || r.Used != int64(i)+1 {
			t.Errorf("call %d: %+v, %v; want it to pass with a count of %d", i, r, err, i+1)
		}
	}
}

// A day in UTC is a window of 24 hours. Whatever row an operation finds, both policies must do the same.
func TestCalendarDayIsAWindow(t *testing.T) {
	t.Parallel()
	const hour, day = int64(time.Hour), 24 * int64(time.Hour)
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) }
		now := start + pick("now", 0, 1, hour, day-1)
		row := limiter.Row{Period: pick("period", day, day, day, hour, 7*day, 31*day), Limit: pick("limit", 3, 3, 5)}
		row.At = now + pick("at", 0, 0, -1, -hour, -day, -3*day, 1, 1e9, 2e9, 3e9, day, day+1)
		row.Start = row.At - row.At%row.Period + pick("window", 0, 0, 0, 1, -1)*row.Period + pick("shift", 0, 0, 0, hour)
		row.Used = pick("used", 0, 1, 2, 3, 4, 1<<62, 1<<62-1)
		op := limiter.Op{
			Kind: limiter.OpKind(pick("kind", 1, 1, 1, 2, 3, 4, 5, 6, 7, 8)), Cost: pick("cost", 1, 2, 3), At: pick("clock", 0, now),
			MaxWait: time.Duration(pick("wait", 0, 0, 1, hour)),
		}
		if op.Kind == limiter.OpRefund || op.Kind == limiter.OpCancel {
			op.Booked = limiter.State{Row: row, Now: now - pick("booked", 0, 1, hour)}
		}
		calendar, window := op, op
		calendar.Policy = limiter.CalendarWindow{Limit: 3, Period: limiter.Day}
		window.Policy = limiter.FixedWindow{Limit: 3, Window: 24 * time.Hour}
		gotRow, got := calendar.Apply(row, now)
		wantRow, want := window.Apply(row, now)
		if got != want || gotRow != wantRow {
			t.Fatalf("%+v at %d on %+v:\n got %+v, %+v\nwant %+v, %+v", op, now, row, got, gotRow, want, wantRow)
		}
	})
}

// After a step back over an edge, the period that the clock is in counts as full, and ends where the calendar
// says.
func TestCalendarClockSetBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 2, 2, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return now }))
	l := newLimiter(t, store, limiter.CalendarWindow{Limit: 3, Period: limiter.Month})
	check := func(at time.Time, allowed bool, reset time.Time) {
		t.Helper()
		now = at
		r, err := l.Allow(t.Context(), "k")
		if err != nil || r.Allowed != allowed || !at.Add(r.ResetAfter).Equal(reset) {
			t.Errorf("at %v: %+v, %v; want Allowed %t, until %v", at, r, err, allowed, reset)
		}
	}
	first := func(m time.Month) time.Time { return time.Date(2024, m, 1, 0, 0, 0, 0, time.UTC) }
	january, february, march := first(1), first(2), first(3)
	check(now, true, march)
	check(january.AddDate(0, 0, -12), false, january)
	check(january.Add(-1), false, january)
	check(january, true, february)
}

// A booking for February has the row's window. Under a quota of the year it counts when February begins.
func TestLongerPeriodAfterABooking(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 23, 30, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return now }))
	month := newLimiter(t, store, limiter.CalendarWindow{Limit: 1, Period: limiter.Month})
	year := newLimiter(t, store, limiter.CalendarWindow{Limit: 2, Period: limiter.Year})
	must(t, testenv.ErrorOf(month.Allow(t.Context(), "k")))
	must(t, testenv.ErrorOf(month.Reserve(t.Context(), "k", 1, time.Hour)))
	res, err := year.Allow(t.Context(), "k")
	if err != nil || res.Allowed || res.RetryAfter != 30*time.Minute {
		t.Errorf("%+v, %v; want a refusal for half an hour", res, err)
	}
	res, err = newLimiter(t, store, limiter.CalendarWindow{Limit: 1, Period: limiter.Year}).Allow(t.Context(), "k")
	if err != nil || res.Allowed || res.RetryAfter != 28*24*time.Hour+30*time.Minute {
		t.Errorf("%+v, %v; want a refusal to the end of February, where there is no room", res, err)
	}
	now = now.Add(30 * time.Minute)
	mustAllow(t, year, true)
}

// The tables of the SQL stores reject the row of a clock before 1970.
func TestCalendarBefore1970(t *testing.T) {
	t.Parallel()
	for _, p := range []limiter.Period{limiter.Day, limiter.Week, limiter.Month, limiter.Year} {
		op := limiter.Op{Kind: limiter.OpTake, Policy: limiter.CalendarWindow{Limit: 5, Period: p}, Cost: 1}
		for _, now := range []time.Time{time.Unix(0, -1), time.Date(1969, 7, 1, 0, 0, 0, 0, time.UTC), time.Date(1900, 7, 1, 0, 0, 0, 0, time.UTC)} {
			if row, s := op.Apply(limiter.Row{}, now.UnixNano()); row.At > 0 && row.Period > 0 {
				t.Errorf("%v at %v: %+v, %+v; want a row that no table holds", p, now, row, s)
			}
		}
	}
}
