package storetest

import (
	"time"

	"github.com/sqlimit/limiter"
)

const (
	day      = 24 * time.Hour
	halfADay = 12 * time.Hour
)

// month is a quota per month, from a day of it.
func month(n int64, startDay int) limiter.CalendarWindow {
	return limiter.CalendarWindow{Limit: n, Period: limiter.Month, StartDay: startDay}
}

// daily is a quota per day in UTC.
func daily(n int64) limiter.CalendarWindow {
	return limiter.CalendarWindow{Limit: n, Period: limiter.Day}
}

// on2024 returns the time from the epoch of the tests to a time of 2024.
func on2024(m time.Month, d, hour, minute int) time.Duration {
	return time.Date(2024, m, d, hour, minute, 0, 0, time.UTC).Sub(epoch)
}

var calendarCases = []testCase{
	{
		"periods of the calendar differ in length",
		"each period lets its limit pass, and ends where the next one begins",
		func(f *fixture) {
			f.script(f.limiter("l", month(3, 31)), "k", []call{
				{at: on2024(1, 31, 0, 0) - ns, n: 3, allowed: true, used: 3, reset: ns},
				{at: on2024(1, 31, 0, 0) - ns, n: 1, used: 3, retry: ns, reset: ns},
				{at: on2024(1, 31, 0, 0), n: 3, allowed: true, used: 3, reset: 29 * day},
				{at: on2024(2, 29, 0, 0) - ns, n: 1, used: 3, retry: ns, reset: ns},
				{at: on2024(2, 29, 0, 0), n: 2, allowed: true, remaining: 1, used: 2, reset: 31 * day},
				{at: on2024(3, 31, 0, 0), verb: peek, allowed: true, remaining: 3},
			})
			here := limiter.CalendarWindow{Limit: 1, Period: limiter.Week, Location: time.FixedZone("here", -5*3600)}
			f.script(f.limiter("week", here), "k", []call{
				{at: on2024(12, 30, 5, 0) - s, n: 1, allowed: true, used: 1, reset: s},
				{at: on2024(12, 30, 5, 0), n: 1, allowed: true, used: 1, reset: 7 * day},
				{at: on2024(12, 30, 5, 0), n: 1, used: 1, retry: 7 * day, reset: 7 * day},
			})
		},
	},
	{
		"the next period is booked within the longest wait",
		"a booking of the next period counts there, with that period's length, and a cancel gives it back",
		func(f *fixture) {
			l := f.limiter("l", month(2, 0))
			end := on2024(2, 1, 0, 0)
			f.script(l, "k", []call{
				{at: end - time.Minute, n: 2, allowed: true, used: 2, reset: time.Minute},
				{at: end - time.Minute, verb: reserve, n: 1, maxWait: time.Minute - ns, used: 2, retry: ns, reset: time.Minute},
				{at: end - time.Minute, verb: reserve, n: 1, maxWait: time.Minute, allowed: true, used: 2, delay: time.Minute, reset: time.Minute + 29*day},
				{at: end - s, n: 1, used: 2, retry: s, reset: s + 29*day},
				{at: end, n: 1, allowed: true, used: 2, reset: 29 * day},
				{at: end, n: 1, used: 2, retry: 29 * day, reset: 29 * day},
			})
			f.at(end - time.Minute)
			f.passes(l, "canceled", 2)
			r := f.reserve(l, "canceled", 1, time.Hour)
			f.cancel(r)
			f.at(end)
			f.passes(l, "canceled", 2)
			f.refuses(l, "canceled", 1)
		},
	},
	{
		"a block lasts until the end of the period in which it ends",
		"a month is blocked to its end, also the next one if the block ends there",
		func(f *fixture) {
			l := f.limiter("l", month(3, 0))
			f.at(on2024(1, 31, 12, 0))
			f.block(l, "this", time.Hour)
			f.block(l, "next", day)
			f.at(on2024(2, 1, 0, 0))
			f.passes(l, "this", 3)
			f.refuses(l, "next", 1)
			f.at(on2024(3, 1, 0, 0) - ns)
			f.refuses(l, "next", 1)
			f.at(on2024(3, 1, 0, 0))
			f.passes(l, "next", 3)
		},
	},
	{
		"a fixed window and a calendar take over from each other",
		"a running window keeps its count and gets the edges of the new policy; one that has ended counts nothing",
		func(f *fixture) {
			hour, calendar := f.limiter("l", window(5, time.Hour)), f.limiter("l", daily(5))
			noon := on2024(2, 29, 12, 0)
			f.at(noon)
			f.passes(hour, "k", 3)
			f.script(calendar, "k", []call{
				{at: noon, verb: peek, allowed: true, remaining: 2, used: 3, reset: halfADay},
				{at: noon, n: 3, remaining: 2, used: 3, retry: time.Hour, reset: halfADay},
				{at: noon, n: 1, allowed: true, remaining: 1, used: 4, reset: halfADay},
			})
			f.script(hour, "k", []call{
				{at: noon + time.Minute, n: 2, remaining: 1, used: 4, retry: 59 * time.Minute, reset: 59 * time.Minute},
				{at: noon + time.Hour, n: 5, allowed: true, used: 5, reset: time.Hour},
			})
			f.script(calendar, "k", []call{
				{at: noon + 2*time.Hour, n: 4, allowed: true, remaining: 1, used: 4, reset: 10 * time.Hour},
			})
		},
	},
	{
		"a row with other edges",
		"a row with the length of the policy, but another start, is converted",
		func(f *fixture) {
			east := limiter.CalendarWindow{Limit: 5, Period: limiter.Day, Location: time.FixedZone("east", 6*3600)}
			for name, p := range map[string]limiter.Policy{"calendar": daily(5), "window": window(5, day)} {
				old, l := f.limiter("l", east), f.limiter("l", p)
				f.at(on2024(2, 29, 17, 0)) // the day in the east ends at 18:00
				f.passes(old, name, 4)
				f.script(l, name, []call{
					{at: on2024(2, 29, 17, 30), n: 2, remaining: 1, used: 4, retry: 30 * time.Minute, reset: 390 * time.Minute},
					{at: on2024(2, 29, 17, 30), n: 1, allowed: true, used: 5, reset: 390 * time.Minute},
					{at: on2024(2, 29, 18, 0), n: 1, used: 5, retry: 6 * time.Hour, reset: 6 * time.Hour},
					{at: on2024(3, 1, 0, 0), n: 1, allowed: true, remaining: 4, used: 1, reset: day},
				})
			}
		},
	},
}

var allCalendarCases = []testCase{
	{
		"calendar windows in AllowAll",
		"the request is charged to all periods, windows and buckets, or to none, in the order of their names",
		func(f *fixture) {
			f.at(on2024(2, 29, 23, 0))
			a, z := f.limiter("a", month(3, 0)), f.limiter("z", daily(2))
			w, b := f.limiter("m", window(2, time.Hour)), f.limiter("m", bucket(2, time.Minute))
			claims := func(ls ...*limiter.Limiter) (all []limiter.Claim) {
				for _, l := range ls {
					all = append(all, limiter.Claim{Limiter: l, Key: "k"})
				}
				return all
			}
			check := func(allowed bool, used map[*limiter.Limiter]int64, ls ...*limiter.Limiter) {
				f.Helper()
				if res := f.all(claims(ls...)...); res.Allowed != allowed {
					f.Fatalf("AllowAll = %+v, want Allowed %t", res, allowed)
				}
				for l, n := range used {
					if r := f.peek(l, "k"); r.Limit-r.Remaining != n {
						f.Fatalf("%s %v has %d of %d left, want %d used", l.Name(), l.Policy(), r.Remaining, r.Limit, n)
					}
				}
			}
			check(true, map[*limiter.Limiter]int64{a: 1, z: 1}, z, a)
			check(true, map[*limiter.Limiter]int64{a: 2, z: 2, w: 1, b: 1}, a, b, w, z)
			check(false, map[*limiter.Limiter]int64{a: 2, z: 2, w: 1, b: 1}, a, b, w, z)
			f.at(on2024(3, 1, 0, 0)) // both periods begin, and the hour
			check(true, map[*limiter.Limiter]int64{a: 1, z: 1, w: 1}, a, w, z)
			check(true, map[*limiter.Limiter]int64{a: 2, z: 2}, a, z)
			check(false, map[*limiter.Limiter]int64{a: 2, z: 2}, a, z)
		},
	},
}
