package handler

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestResetOfAWindow(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 21, 12, 10, 0, 0, time.UTC)
	for _, skew := range []time.Duration{-20 * time.Second, -time.Second, -time.Nanosecond, 0, 1, 400 * time.Millisecond, 20 * time.Second} {
		for _, left := range []time.Duration{1, time.Second, 9 * time.Minute, 10 * time.Minute} {
			l := legacy{window: 10 * time.Minute, now: func() time.Time { return end.Add(-left + skew) }}
			testenv.Equal(t, l.reset(left), end.Unix(), left, "before the end, with a clock off by", skew)
		}
	}
}

func TestResetOfABucket(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	for after, want := range map[time.Duration]int64{0: 1_000, 1: 1_001, time.Second: 1_001, time.Second + 1: 1_002} {
		l := legacy{now: func() time.Time { return now }}
		testenv.Equal(t, l.reset(after), want, "reset", after)
	}
	window := legacy{window: time.Minute, now: func() time.Time { return now }}
	testenv.Equal(t, window.reset(0), 1_000, "an unused window, now")
}
