package steps_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/steps"
)

// history has a key asked too often while its clock makes steps. wrong changes the row after each.
func history(r *rand.Rand, p limiter.Policy, wrong func(row *limiter.Row, now int64)) (segments []steps.Segment) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var row limiter.Row
	for range 20 {
		s := steps.Segment{Began: now}
		// Now and then nobody asks between two steps, or hardly anybody.
		for range []int{60, 60, 60, 1, 0}[r.IntN(5)] {
			op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: 1 + r.Int64N(3)}
			next, state := op.Apply(row, now)
			if row = next; state.Took {
				s.Grants = append(s.Grants, steps.Grant{Cost: op.Cost, State: state})
			} else {
				s.Refuse(state)
			}
			now += r.Int64N(int64(5 * time.Millisecond))
		}
		segments = append(segments, s)
		d := time.Duration(int64(time.Millisecond) << r.IntN(38)) // up to nine years
		if r.IntN(4) == 0 {                                       // about as far as is taken for statements that wait for each other
			d = limiter.ClockTolerance + time.Duration(r.Int64N(int64(300*time.Millisecond))) - 100*time.Millisecond
		}
		if r.IntN(2) == 0 {
			d = -d
		}
		now += int64(d)
		wrong(&row, now)
	}
	return segments
}

func TestWhatAStepGrantsIsSeen(t *testing.T) {
	for _, c := range kinds.Clocked {
		for name, wrong := range map[string]func(row *limiter.Row, now int64){
			"": func(*limiter.Row, int64) {},
			"a row that is forgotten": func(row *limiter.Row, now int64) {
				if row.At > now {
					*row = limiter.Row{}
				}
			},
			"a row that is anchored without its debt": func(row *limiter.Row, now int64) {
				if row.At > now+int64(limiter.ClockTolerance) {
					row.FullAt, row.At, row.Used, row.List = now, now, 0, ""
					row.Start = now - now%max(1, row.Period)
				}
			},
		} {
			r, seen := rand.New(rand.NewPCG(1, 2)), int64(0)
			for range 20 {
				seen += kinds.Bounds(c.Policy).Over(history(r, c.Policy, wrong))
			}
			testenv.Equal(t, seen > 0, name != "", c.Policy, name, "counts as over", seen)
		}
	}
}

func TestReopenedWindowIsSeen(t *testing.T) {
	hour := int64(time.Hour)
	segment := func(began, start, now int64) steps.Segment {
		state := limiter.State{Now: now, Took: true, Row: limiter.Row{Start: start, Used: 1}}
		return steps.Segment{Began: began, Grants: []steps.Grant{{Cost: 1, State: state}}}
	}
	after := segment(2*hour, 2*hour, 2*hour)
	again := segment(2*hour-int64(time.Second), hour, 2*hour-1)
	testenv.Equal(t, (steps.Window{Limit: 3, Window: time.Hour}).Over([]steps.Segment{after, again}), 1, "reopened")
}
