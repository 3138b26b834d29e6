//go:build unix

package main_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// quota lies off the multiples of a period's length, wherever the calendar is.
var quota = limiter.CalendarWindow{Limit: 10, Period: limiter.Year, Location: time.FixedZone("here", 3600+1800)}

func TestCalendarQuota(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "exports", quota, "alice", 4)
		_, end := quota.Span(time.Now())
		s := decode[peeked](t, succeeds(t, db.url, "peek", "exports", "alice", "-o", "json")).States[0]
		if left := time.Until(end).Seconds(); !s.Allowed || s.Used != 4 || s.Remaining != 6 || s.ResetAfter < left-1 || s.ResetAfter > left+60 {
			t.Errorf("%+v, want 4 of 10 used, until the row's own window ends in %v s", s, left)
		}

		for _, key := range []string{"alice", "bob", "alice"} { // bob has no row, and then alice's has no start
			fails(t, db.url, 2, []string{"--period", "--location", "--start-day"}, "block", "exports", key, "--for", "1h")
			succeeds(t, db.url, "reset", "exports", key)
		}
		month := limiter.CalendarWindow{Limit: 10, Period: limiter.Month, StartDay: 17}
		use(t, db.store, "mails", month, "alice", 4)
		_, end = month.Span(time.Now().Add(time.Hour))
		for _, key := range []string{"alice", "bob"} {
			succeeds(t, db.url, "block", "mails", key, "--for", "1h", "--period", "month", "--start-day", "17")
			s := decode[peeked](t, succeeds(t, db.url, "peek", "mails", key, "-o", "json")).States[0]
			if left := time.Until(end).Seconds(); s.Allowed || s.RetryAfter < left-1 || s.RetryAfter > left+60 || s.Policy.Limit != 10 {
				t.Errorf("%s: %+v, want a block until the end of the period in %v s", key, s, left)
			}
		}
		fails(t, db.url, 2, []string{"pass --limit"}, "block", "none", "alice", "--for", "1h", "--period", "year")
	})
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		c, err := limiter.NewConcurrency(db.store, "exports", limiter.InFlight{Limit: 3, Hold: time.Hour}, limiter.WithTimeout(10*time.Second))
		must(t, err)
		for _, d := range []time.Duration{time.Hour, 2 * time.Hour} {
			if lease, err := c.TryAcquireFor(t.Context(), "alice", d); err != nil || !lease.Allowed {
				t.Fatalf("%+v, %v", lease.Result, err)
			}
		}
		contains(t, succeeds(t, db.url, "peek", "exports", "alice").stdout, "3 in flight", "2 of 3", "remaining  1")
		s := decode[peeked](t, succeeds(t, db.url, "peek", "exports", "alice", "-o", "json")).States[0]
		if s.Policy != (policyOf{Kind: "lease", Limit: 3}) || !s.Allowed || s.Used != 2 || s.ResetAfter < 7100 || s.ResetAfter > 7200 {
			t.Errorf("%+v, want 2 of 3 places taken for 2 h", s)
		}
		contains(t, succeeds(t, db.url, "top", "--once").stdout, "exports", "alice", "2 of 3")

		fails(t, db.url, 2, []string{"requests in flight", "cannot be blocked"}, "block", "exports", "alice", "--for", "1h")
		succeeds(t, db.url, "override", "set", "exports", "alice", "--limit", "9")
		fails(t, db.url, 2, []string{"1000"}, "override", "set", "exports", "alice", "--limit", "5000")
		contains(t, succeeds(t, db.url, "override", "list", "exports").stdout, "limit of 9")
		succeeds(t, db.url, "reset", "exports", "alice")
		if r, err := c.Peek(t.Context(), "alice"); err != nil || r.Used != 0 {
			t.Errorf("after reset: %+v, %v", r, err)
		}
	})
}
