package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

func takes(d time.Duration) func(context.Context, int) error {
	return func(context.Context, int) error {
		<-time.After(d)
		return nil
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		load     load.Load
		requests uint64
		timed    int
	}{
		// Counting begins at 15 ms and ends at 115 ms, when one more call of each is under way.
		"each":         {load.Load{Ask: takes(10 * time.Millisecond)}, 3 * 10, 3 * 11},
		"many at once": {load.Load{Ask: takes(10 * time.Millisecond), Requests: 256}, 3 * 10 * 256, 3 * 11},
		"paced":        {load.Load{Ask: takes(time.Millisecond), Every: 30 * time.Millisecond}, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, err := c.load.Run(t.Context(), 3, 15*time.Millisecond, 100*time.Millisecond)
				if err != nil || got.Requests != c.requests || got.Rate != 10*float64(c.requests) || len(got.Latencies) != c.timed {
					t.Errorf("counted %d decisions, %v/s, and timed %d, error %v; want %d, %d", got.Requests, got.Rate, len(got.Latencies), err, c.requests, c.timed)
				}
			})
		})
	}
}

func TestRunTimesASample(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := load.Load{Ask: takes(time.Millisecond), Sample: 32}.Run(t.Context(), 1, 0, 3200*time.Millisecond-1)
		if err != nil || len(got.Latencies) != 100 {
			t.Errorf("timed %d of %d calls, error %v", len(got.Latencies), got.Requests, err)
		}
	})
}

func TestWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		got, err := load.Load{Ask: takes(time.Second)}.While(t.Context(), 1, 0, func(context.Context) error {
			<-time.After(10*time.Second + time.Millisecond)
			return broken
		})
		if !errors.Is(err, broken) || got.Requests != 10 {
			t.Errorf("%d decisions, error %v; want 10, %v", got.Requests, err, broken)
		}
	})
}

func TestPacedCallersWaitFromWhenDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		l := load.Load{Every: 32, Ask: func(context.Context, int) error {
			if calls.Add(1) == 1 {
				<-time.After(3 * 32)
			}
			return nil
		}}
		got, err := l.Run(t.Context(), 1, 0, 100*32-1)
		// Those that were due at 0, 32 and 64 are answered at 96, and all others when they are due.
		if slow, rest := stats.Quantile(got.Latencies, 0.99), stats.Quantile(got.Latencies, 0.97); err != nil || got.Requests != 100 || slow != 3*32 || rest != 32 {
			t.Errorf("%d decisions, the slowest took %d, the third slowest %d, error %v; want 100, 96, 32", got.Requests, slow, rest, err)
		}
	})
}

func TestRunThatCountsNothingFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := load.Load{Ask: takes(32 * time.Second)}.Run(t.Context(), 1, 0, time.Second)
		if slow := stats.Quantile(got.Latencies, 1); !errors.Is(err, load.ErrNone) || slow < 31*time.Second {
			t.Errorf("the slowest call took %v, error %v; want 32s, %v", slow, err, load.ErrNone)
		}
	})
}
