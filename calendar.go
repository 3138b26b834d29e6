package limiter

import (
	"fmt"
	"time"
)

// Period is a period of the calendar. The zero Period is not valid.
type Period uint8

const (
	// Day is from midnight to midnight.
	Day Period = iota + 1
	// Week begins on Monday (ISO 8601).
	Week
	// Month begins on the first, or on [CalendarWindow].StartDay.
	Month
	// Year begins on January 1.
	Year
)

// String returns the name of p in lower case.
func (p Period) String() string {
	switch p {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	case Year:
		return "year"
	}
	return fmt.Sprintf("period(%d)", uint8(p))
}

// CalendarWindow is a policy that allows at most Limit requests per period of the calendar in Location. It
// works like a [FixedWindow] whose windows are the periods. Use it for quotas, such as 10,000 exports per
// month.
//
// A period begins at the first instant of its first date in Location. If clocks are set forward over
// midnight, that is the instant of the change. If midnight comes twice, it is the first one. A day lasts 21
// to 27 hours, with one exception in Antarctica. The store's clock decides which period it is. The time zone
// database is that of the process: import [time/tzdata] where the system has none. If two processes have
// different ones, up to one more Limit may pass where a period ends.
//
// Load each Location once, for example into a package variable. Two Locations of one name have the same
// rows and counts, but they make two different policies. Then [AllowAll] for one key is [ErrInvalid], and
// the deny cache does not help.
//
// After a change of policy, the current window keeps its count, but it ends when the window of the new
// policy ends. To change a quota, change only Limit: after a change to a shorter period, the count is lost
// when that period ends. Never let customers choose StartDay or Location. Moving StartDay each day would
// give them a whole Limit each day.
//
// [Limiter.Block] refuses until the end of the period in which the block ends. To block a key of a monthly
// quota for minutes, use a second limiter. The zero CalendarWindow is not valid.
type CalendarWindow struct {
	Limit  int64  // the cost that passes per period: 1 to 2^60
	Period Period // Day, Week, Month or Year

	// StartDay is the day of the month on which a period starts: 1 to 31; 0 means 1. In a shorter month
	// it is the last day. It is an error unless Period is Month.
	StartDay int

	// Location is the time zone; nil means UTC. time.Local is an error, because it differs between machines.
	Location *time.Location
}

// initialLocal is the value that time.Local had first. A program may set it to another one, such as UTC.
var initialLocal = time.Local

// String returns the policy as text, such as "100 per month from day 15 (Europe/Berlin)".
func (w CalendarWindow) String() string {
	text := fmt.Sprintf("%d per %v", w.Limit, w.Period)
	if w.StartDay > 1 {
		text += fmt.Sprintf(" from day %d", w.StartDay)
	}
	return fmt.Sprintf("%s (%v)", text, w.location())
}

func (w CalendarWindow) check() error {
	if w.Limit < 1 || w.Limit > maxLimit {
		return invalid("CalendarWindow.Limit is %d; it must be 1 to 2^60", w.Limit)
	}
	if w.Period < Day || w.Period > Year {
		return invalid("CalendarWindow.Period is %d; pass Day, Week, Month or Year", uint8(w.Period))
	}
	if w.StartDay < 0 || w.StartDay > 31 {
		return invalid("CalendarWindow.StartDay is %d; it must be 1 to 31, and 0 means 1", w.StartDay)
	}
	if w.StartDay != 0 && w.Period != Month {
		return invalid("CalendarWindow.StartDay is %d and Period is %v; leave StartDay out, or pass Month", w.StartDay, w.Period)
	}
	if w.Location == initialLocal && initialLocal != time.UTC {
		return invalid("CalendarWindow.Location is time.Local, which differs between machines; pass what time.LoadLocation returned")
	}
	return nil
}

// normal returns w in the form in which equal policies are equal values.
func (w CalendarWindow) normal() CalendarWindow {
	if w.Location == time.UTC {
		w.Location = nil
	}
	if w.StartDay == 1 && w.Period == Month {
		w.StartDay = 0
	}
	return w
}

func (w CalendarWindow) limit() int64 { return w.Limit }

func (w CalendarWindow) windows() windows { return windows{lim: w.Limit, calendar: w} }

func (w CalendarWindow) location() *time.Location {
	if w.Location == nil {
		return time.UTC
	}
	return w.Location
}

// Span returns the period that t is in: start <= t < end, both in Location. It returns two zero Times if w
// is not valid. The year of t is 1 to 9999.
func (w CalendarWindow) Span(t time.Time) (start, end time.Time) {
	if w.check() != nil {
		return start, end
	}
	return w.span(t)
}

// span is Span of a valid w.
func (w *CalendarWindow) span(t time.Time) (start, end time.Time) {
	t = t.In(w.location())
	y, m, d := t.Date()
	switch w.Period {
	case Week:
		d -= (int(t.Weekday()) + 6) % 7
	case Month:
		d = 1
	case Year:
		m, d = 1, 1
	}
	// t may be outside the period of its local date: after clocks were set back over midnight, around a
	// date that was left out, or because of StartDay. The loops step to the period that contains t.
	n := 0
	for start = w.begin(y, m, d, n, t); start.After(t); start = w.begin(y, m, d, n, t) {
		n--
	}
	for end = w.begin(y, m, d, n+1, t); !end.After(t); end = w.begin(y, m, d, n+1, t) {
		n++
		start = end
	}
	return start, end
}

// begin returns the first instant of the n-th period after the one that has a date. The Location is that
// of t.
func (w *CalendarWindow) begin(y int, m time.Month, d, n int, t time.Time) time.Time {
	switch w.Period {
	case Day:
		d += n
	case Week:
		d += 7 * n
	case Month:
		m += time.Month(n)
		if d = max(1, w.StartDay); d > 28 {
			d = min(d, time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day())
		}
	default: // Year
		y += n
	}
	return firstOf(y, m, d, t.Location())
}

// firstOf returns the first instant whose local date is the given one or a later one.
func firstOf(y int, m time.Month, d int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	if loc == time.UTC {
		return t
	}
	midnight := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	_, offset := t.Zone()
	switch local := t.Unix() + int64(offset); {
	case local < midnight: // clocks were set forward over midnight, and t is in the zone before
		_, t = t.ZoneBounds()
	case local > midnight: // the same, and t is in the zone after
		t, _ = t.ZoneBounds()
	default:
		// Midnight may have come in the zone before, which may still have been in use then.
		if from, _ := t.ZoneBounds(); !from.IsZero() && t.Sub(from) < 24*time.Hour {
			_, before := from.Add(-1).Zone()
			if first := time.Unix(midnight-int64(before), 0); first.Before(from) {
				t = first.In(loc)
			}
		}
	}
	return t
}

// at returns the start and the length of the period that t is in, in nanoseconds since 1970. A period that
// began earlier is cut there.
func (w *CalendarWindow) at(t int64) (start, length int64) {
	from, to := w.span(time.Unix(0, t))
	if from.Unix() > 0 {
		start = from.UnixNano()
	}
	return start, to.UnixNano() - start
}
