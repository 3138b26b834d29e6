package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// policyFlags are the ways to give a policy.
type policyFlags struct {
	capacity, refill, limit int64
	interval, window        time.Duration
	countRejected           bool

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
}

// policy returns the policy that the flags describe for a limiter, or nil if none is set.
func (p *policyFlags) policy(name string) (limiter.Policy, error) {
	policy, err := p.described()
	if err != nil || policy == nil {
		return nil, err
	}
	if err := database.CheckPolicy(name, policy); err != nil {
		return nil, usageError{errors.New(policyFields.Replace(err.Error()))}
	}
	return policy, nil
}

// policyFields turns the fields of policies in an error into the flags that set them.
var policyFields = strings.NewReplacer(
	"TokenBucket.Capacity", "--capacity", "TokenBucket.Refill", "--refill", "TokenBucket.Interval", "--interval",
	"FixedWindow.Limit", "--limit", "FixedWindow.Window", "--window",
	"lower Refill or raise Interval", "lower --refill or raise --interval",
	"lower Capacity or raise the rate", "lower --capacity, raise --refill or lower --interval",
	"TokenBucket refills", "the bucket refills", "TokenBucket takes", "the bucket takes",
)

// described returns the policy that the flags describe, or nil if none is set.
func (p *policyFlags) described() (limiter.Policy, error) {
	bucket := p.given("capacity") || p.given("refill") || p.given("interval")
	window := p.given("limit") || p.given("window") || p.given("count-rejected")
	switch {
	case bucket && window:
		return nil, usageError{errors.New("--capacity, --refill and --interval describe a bucket; --limit, --window and --count-rejected describe a window; pass one of the two")}
	case bucket:
		return limiter.TokenBucket{Capacity: p.capacity, Refill: p.refill, Interval: p.interval}, nil
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
	Limit         int64         `json:"limit,omitempty"` // of a window
	Window        float64       `json:"window_seconds,omitempty"`
	CountRejected bool          `json:"count_rejected,omitempty"`
}

func newPolicy(p limiter.Policy) policyJSON {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return policyJSON{Kind: database.KindOf(p), Capacity: p.Capacity, Refill: p.Refill, Interval: show.Seconds(p.Interval)}
	case limiter.FixedWindow:
		return policyJSON{Kind: database.KindOf(p), Limit: p.Limit, Window: show.Seconds(p.Window), CountRejected: p.CountRejected}
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
	case p.CountRejected:
		return fmt.Sprintf("%d per window of %s, counts refusals", p.Limit, seconds(p.Window))
	}
	return fmt.Sprintf("%d per window of %s", p.Limit, seconds(p.Window))
}
