package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for --location, where the system has none

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
	"github.com/sqlimit/limiter/overrides"
)

// policyFlags are the ways to give a policy.
type policyFlags struct {
	capacity, refill, limit int64
	interval, window        time.Duration
	countRejected, sliding  bool
	period, location        string
	startDay                int

	given func(flag string) bool
}

func (p *policyFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	p.given = f.Changed
	f.Int64Var(&p.capacity, "capacity", 0, "of a bucket: how many tokens it holds")
	f.Int64Var(&p.refill, "refill", 1, "of a bucket: tokens that come back per interval")
	durationVar(cmd, &p.interval, "interval", "of a bucket: how long a refill takes, such as 1m")
	f.Int64Var(&p.limit, "limit", 0, "of a window: requests per window")
	durationVar(cmd, &p.window, "window", "of a window: its length, such as 24h or 30d")
	f.BoolVar(&p.countRejected, "count-rejected", false, "of a window: refused requests also count")
	f.BoolVar(&p.sliding, "sliding", false, "of a window: it is any span of that length")
}

// registerCalendar adds the flags of a [limiter.CalendarWindow]. Overrides cannot have one.
func (p *policyFlags) registerCalendar(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.period, "period", "", "of a calendar: day, week, month or year")
	f.IntVar(&p.startDay, "start-day", 0, "of a month of the calendar: the day on which it starts, 1 to 31")
	f.StringVar(&p.location, "location", "", "of a calendar: its time zone, such as Europe/Berlin (default: UTC)")
}

// limitAlone reports whether only --limit describes a policy.
func (p *policyFlags) limitAlone() bool {
	return p.given("limit") && !slices.ContainsFunc([]string{"capacity", "refill", "interval", "window", "count-rejected", "sliding"}, p.given)
}

// checkLimit returns an error if no window can have --limit.
func (p *policyFlags) checkLimit(name string) error {
	_, err := p.policyOf(name, limiter.FixedWindow{Limit: p.limit, Window: time.Hour})
	return err
}

// policy returns the policy that the flags describe for a limiter, or nil if none is set.
func (p *policyFlags) policy(name string) (limiter.Policy, error) {
	policy, err := p.described()
	if err != nil || policy == nil {
		return nil, err
	}
	return p.policyOf(name, policy)
}

// policyOf returns policy if a limiter can have it. A calendar without --limit gets that of a row later.
func (p *policyFlags) policyOf(name string, policy limiter.Policy) (limiter.Policy, error) {
	checked := policy
	if w, ok := policy.(limiter.CalendarWindow); ok && !p.given("limit") {
		w.Limit = 1
		checked = w
	}
	if err := database.CheckPolicy(name, checked); err != nil {
		return nil, usageError{errors.New(policyFields.Replace(err.Error()))}
	}
	return policy, nil
}

// periods are the values of --period.
var periods = map[string]limiter.Period{
	"day": limiter.Day, "week": limiter.Week, "month": limiter.Month, "year": limiter.Year,
}

// calendar returns the policy of the flags of a calendar.
func (p *policyFlags) calendar() (limiter.Policy, error) {
	w := limiter.CalendarWindow{Limit: p.limit, Period: periods[p.period], StartDay: p.startDay}
	if w.Period == 0 {
		return nil, usageError{fmt.Errorf("--period is %q; pass day, week, month or year", p.period)}
	}
	var err error
	if w.Location, err = time.LoadLocation(p.location); err != nil || p.location == "Local" {
		return nil, usageError{fmt.Errorf("--location is %q; pass a time zone such as Europe/Berlin", p.location)}
	}
	return w, nil
}

// policyFields turns the fields of policies in an error into the flags that set them.
var policyFields = strings.NewReplacer(
	"TokenBucket.Capacity", "--capacity", "TokenBucket.Refill", "--refill", "TokenBucket.Interval", "--interval",
	"CalendarWindow.Limit", "--limit", "CalendarWindow.StartDay", "--start-day", " and Period is ", " and --period is ",
	"leave StartDay out, or pass Month", "leave --start-day out, or pass --period month",
	"FixedWindow.Limit", "--limit", "FixedWindow.Window", "--window",
	"SlidingWindow.Limit", "--limit", "SlidingWindow.Window", "--window",
	"lower Refill or raise Interval", "lower --refill or raise --interval",
	"lower Capacity or raise the rate", "lower --capacity, raise --refill or lower --interval",
	"TokenBucket refills", "the bucket refills", "TokenBucket takes", "the bucket takes",
)

// described returns the policy that the flags describe, or nil if none is set.
func (p *policyFlags) described() (limiter.Policy, error) {
	bucket := p.given("capacity") || p.given("refill") || p.given("interval")
	only := p.given("window") || p.given("count-rejected") || p.given("sliding")
	window := p.given("limit") || only
	calendar := p.given("period") || p.given("start-day") || p.given("location")
	switch {
	case calendar && (bucket || only):
		return nil, usageError{errors.New("--period, --start-day and --location describe a calendar; only --limit goes with them")}
	case calendar:
		return p.calendar()
	case bucket && window:
		return nil, usageError{errors.New("--capacity, --refill and --interval describe a bucket; --limit, --window, --count-rejected and --sliding describe a window; pass one of the two")}
	case bucket && !(p.given("capacity") && p.given("interval")):
		return nil, usageError{errors.New("a bucket needs both --capacity and --interval")}
	case window && !(p.given("limit") && p.given("window")):
		return nil, usageError{errors.New("a window needs both --limit and --window")}
	case bucket:
		return limiter.TokenBucket{Capacity: p.capacity, Refill: p.refill, Interval: p.interval}, nil
	case p.sliding && p.countRejected:
		return nil, usageError{errors.New("--sliding and --count-rejected do not go together")}
	case p.sliding:
		return limiter.SlidingWindow{Limit: p.limit, Window: p.window}, nil
	case window:
		return limiter.FixedWindow{Limit: p.limit, Window: p.window, CountRejected: p.countRejected}, nil
	}
	return nil, nil
}

// policyJSON is a policy in JSON.
type policyJSON struct {
	Kind          database.Kind `json:"kind"`
	Capacity      int64         `json:"capacity,omitempty"` // of a bucket
	Refill        int64         `json:"refill,omitempty"`
	Interval      float64       `json:"interval_seconds,omitempty"`
	Limit         int64         `json:"limit,omitempty"` // of a window or of requests in flight, or a limit alone
	Window        float64       `json:"window_seconds,omitempty"`
	CountRejected bool          `json:"count_rejected,omitempty"`
}

func newPolicy(p limiter.Policy) policyJSON {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return policyJSON{Kind: database.KindOf(p), Capacity: p.Capacity, Refill: p.Refill, Interval: show.Seconds(p.Interval)}
	case limiter.FixedWindow:
		return policyJSON{Kind: database.KindOf(p), Limit: p.Limit, Window: show.Seconds(p.Window), CountRejected: p.CountRejected}
	case limiter.InFlight:
		return policyJSON{Kind: database.KindOf(p), Limit: p.Limit}
	case limiter.SlidingWindow:
		return policyJSON{Kind: database.KindOf(p), Limit: p.Limit, Window: show.Seconds(p.Window)}
	}
	return policyJSON{}
}

func (p policyJSON) limit() int64 { return max(p.Capacity, p.Limit) }

// String returns the policy for people.
func (p policyJSON) String() string {
	switch {
	case p.Capacity > 0 && p.Refill == 1:
		return fmt.Sprintf("bucket of %d, one back every %s", p.Capacity, seconds(p.Interval))
	case p.Capacity > 0:
		return fmt.Sprintf("bucket of %d, %d back every %s", p.Capacity, p.Refill, seconds(p.Interval))
	case p.Kind == overrides.KindLimit:
		return fmt.Sprintf("limit of %d", p.Limit)
	case p.Window == 0:
		return fmt.Sprintf("%d in flight", p.Limit)
	case p.Kind == database.KindOf(limiter.SlidingWindow{}):
		return fmt.Sprintf("%d in any %s", p.Limit, seconds(p.Window))
	case p.CountRejected:
		return fmt.Sprintf("%d per window of %s, counts refusals", p.Limit, seconds(p.Window))
	}
	return fmt.Sprintf("%d per window of %s", p.Limit, seconds(p.Window))
}
