// Package override converts rows of the table limiter_overrides. The SQL stores call it.
package override

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
)

// Row is a row of the table, with 0 and "" for NULL.
type Row struct {
	Key string
	Columns
	Note      string
	ExpiresAt int64 // ns since 1970
}

// Columns are the columns of a policy. Period is in nanoseconds.
type Columns struct {
	Kind                     string
	Capacity, Refill, Period int64
}

const (
	bucket         = "bucket"
	window         = "window"
	windowCounting = "window_counting"
	sliding        = "sliding"
	// Limit is the kind of an override of the limit alone, which is its capacity.
	Limit = "limit"
)

// ColumnsOf returns the columns of a policy.
func ColumnsOf(p limiter.Policy) Columns {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return Columns{bucket, p.Capacity, p.Refill, int64(p.Interval)}
	case limiter.FixedWindow:
		if p.CountRejected {
			return Columns{windowCounting, p.Limit, 0, int64(p.Window)}
		}
		return Columns{window, p.Limit, 0, int64(p.Window)}
	case limiter.SlidingWindow:
		return Columns{sliding, p.Limit, 0, int64(p.Window)}
	}
	return Columns{}
}

// Policy returns the policy, unchecked: nil for kind [Limit]. The error matches [limiter.ErrMisconfigured] if
// the kind is unknown.
func (c Columns) Policy() (limiter.Policy, error) {
	switch c.Kind {
	case bucket:
		return limiter.TokenBucket{Capacity: c.Capacity, Refill: c.Refill, Interval: time.Duration(c.Period)}, nil
	case window, windowCounting:
		return limiter.FixedWindow{Limit: c.Capacity, Window: time.Duration(c.Period), CountRejected: c.Kind == windowCounting}, nil
	case sliding:
		return limiter.SlidingWindow{Limit: c.Capacity, Window: time.Duration(c.Period)}, nil
	case Limit:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: limiter_overrides has a row of kind %q, which this release does not know; change the row, or upgrade",
		limiter.ErrMisconfigured, c.Kind)
}

// WithLimit returns base with another limit, or nil if that is a bucket.
func WithLimit(base limiter.Policy, limit int64) limiter.Policy {
	switch p := base.(type) {
	case limiter.FixedWindow:
		p.Limit = limit
		return p
	case limiter.CalendarWindow:
		p.Limit = limit
		return p
	case limiter.InFlight:
		p.Limit = limit
		return p
	case limiter.SlidingWindow:
		p.Limit = limit
		return p
	}
	return nil
}

// CheckName returns what is wrong with the name of a limiter.
func CheckName(name string) error {
	_, err := limiter.New(nowhere{}, name, limiter.PerMinute(1))
	return err
}

// Check returns a policy in the form that a limiter gives it, or what is wrong with it.
func Check(p limiter.Policy) (limiter.Policy, error) {
	if p, ok := p.(limiter.InFlight); ok {
		_, err := limiter.NewConcurrency(nowhere{}, "base", p)
		return p, err
	}
	l, err := limiter.New(nowhere{}, "base", p)
	if err != nil {
		return nil, err
	}
	return l.Policy(), nil
}

// nowhere is the store of a Limiter that only checks its arguments.
type nowhere struct{}

func (nowhere) Do(context.Context, limiter.Op) (limiter.State, error) {
	return limiter.State{}, limiter.ErrNotApplied
}

// Override returns what the row means. The error matches [limiter.ErrMisconfigured] if the kind is
// unknown. Override does not check the policy: the limiter does that, for the requests of its key.
func (r Row) Override() (limiter.Override, error) {
	o := limiter.Override{Key: r.Key, Note: r.Note}
	var err error
	if o.Policy, err = r.Policy(); err != nil {
		return limiter.Override{}, err
	}
	if r.Kind == Limit {
		o.Limit = r.Capacity
	}
	if r.ExpiresAt != 0 {
		o.ExpiresAt = time.Unix(0, r.ExpiresAt)
	}
	return o, nil
}
