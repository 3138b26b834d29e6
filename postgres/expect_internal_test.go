package postgres

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

func TestExpectations_follow_from_the_time_that_has_gone_by(t *testing.T) {
	t.Parallel()
	bucket := limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Minute}
	window := limiter.FixedWindow{Limit: 10, Window: time.Minute}
	const now, minute = int64(1_800_000_000_000_000_000), int64(time.Minute) // at the beginning of a minute
	full := func(debt int64) limiter.State {
		return limiter.State{Now: now, Row: limiter.Row{FullAt: now + debt*minute, At: now, Period: minute, Limit: 10}}
	}
	used := func(n int64) limiter.State {
		return limiter.State{Now: now, Row: limiter.Row{Start: now, Used: n, At: now, Period: minute, Limit: 10}}
	}
	for _, c := range []struct {
		name   string
		policy limiter.Policy
		saw    limiter.State
		cost   int64
		after  time.Duration
		want   expectation
	}{
		{"a bucket with half left", bucket, full(5), 5, 0, granted},
		{"a bucket with half left, and more wanted", bucket, full(5), 6, 0, refused},
		{"a bucket with less than half left", bucket, full(6), 4, 0, unsure},
		{"a bucket with less, half an hour later", bucket, full(6), 4, time.Hour / 2, unsure},
		{"a bucket that may have been swept", bucket, full(6), 4, 6*time.Minute + limiter.SweepGrace, unknown},
		{"an empty bucket", bucket, full(10), 1, 0, refused},
		{"an empty bucket, a moment before the next token", bucket, full(10), 1, time.Minute - time.Second, refused},
		{"an empty bucket, when a token is there", bucket, full(10), 1, time.Minute, unsure},
		{"a window with half left", window, used(5), 5, 0, granted},
		{"a window with less than half left", window, used(6), 4, 0, unsure},
		{"a window with too little left", window, used(6), 5, time.Minute - time.Second, refused},
		{"a window that has ended", window, used(5), 1, time.Minute, unsure},
		{"a window that may have been swept", window, used(5), 1, time.Minute + limiter.SweepGrace, unknown},
	} {
		e := newExpectations()
		op := limiter.Op{Kind: limiter.OpTake, Name: "l", Key: "k", Policy: c.policy, Cost: c.cost}
		if got := e.of(op); got != unknown {
			t.Errorf("%s, before it was seen: %v", c.name, got)
		}
		e.keep(op, c.saw, e.now())
		e.base = e.base.Add(-c.after)
		if got := e.of(op); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		e.forget(op)
		if got := e.of(op); got != unknown {
			t.Errorf("%s, forgotten: %v", c.name, got)
		}
	}
}

func TestExpectations_count_the_time_that_a_process_was_frozen(t *testing.T) {
	t.Parallel()
	e := newExpectations()
	before := e.now()
	// While it was, the wall clock went on and the monotonic one did not.
	e.wall = e.wall.Add(-time.Hour)
	if gone := time.Duration(e.now() - before); gone < time.Hour {
		t.Errorf("%v have gone by, want an hour", gone)
	}
}
