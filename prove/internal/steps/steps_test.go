package steps_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/steps"
)

// history has a key asked more often than the policy allows, while its clock makes steps.
// wrong, if it is not nil, changes the row after each step.
func history(r *rand.Rand, p limiter.Policy, wrong func(row *limiter.Row, now int64)) (segments []steps.Segment, took time.Duration, made []time.Duration) {
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
			d := time.Duration(r.Int64N(int64(5 * time.Millisecond)))
			took += d
			now += int64(d)
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
		made = append(made, d)
		if wrong != nil {
			wrong(&row, now)
		}
	}
	return segments, took, made
}

func granted(segments []steps.Segment) (n int64) {
	for _, s := range segments {
		for _, g := range s.Grants {
			n += g.Cost
		}
	}
	return n
}

func TestBoundsOfApply(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range kinds.Clocked {
		p, bounds := c.Policy, kinds.Bounds(c.Policy)
		for range 2000 {
			segments, took, made := history(r, p, nil)
			if n := bounds.Over(segments); n != 0 {
				t.Fatalf("%+v: %d over", p, n)
			}
			if n, most := granted(segments), bounds.AtMost(took, made); n > most {
				t.Fatalf("%+v: %d granted, at most %d", p, n, most)
			}
		}
	}
}

func TestWhatAStepGrantsIsSeen(t *testing.T) {
	for name, wrong := range map[string]func(row *limiter.Row, now int64){
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
		r := rand.New(rand.NewPCG(1, 2))
		for _, c := range kinds.Clocked {
			p := c.Policy
			seen := int64(0)
			for range 20 {
				segments, _, _ := history(r, p, wrong)
				seen += kinds.Bounds(p).Over(segments)
			}
			if seen == 0 {
				t.Errorf("%+v: %s is not seen", p, name)
			}
		}
	}
}

func TestReopenedWindowIsSeen(t *testing.T) {
	p := steps.Window{Limit: 3, Window: time.Hour}
	grant := func(start, used, now int64) steps.Grant {
		return steps.Grant{Cost: 1, State: limiter.State{Now: now, Took: true, Row: limiter.Row{Start: start, Used: used}}}
	}
	hour := int64(time.Hour)
	for name, c := range map[string]struct {
		grants []steps.Grant
		over   int64
	}{
		"three":                 {[]steps.Grant{grant(hour, 1, hour), grant(hour, 2, hour), grant(hour, 3, hour)}, 0},
		"four":                  {[]steps.Grant{grant(hour, 1, hour), grant(hour, 2, hour), grant(hour, 3, hour), grant(hour, 3, hour)}, 1},
		"three and the next":    {[]steps.Grant{grant(hour, 1, hour), grant(hour, 2, hour), grant(hour, 3, hour), grant(2*hour, 1, 2*hour)}, 0},
		"three in either order": {[]steps.Grant{grant(2*hour, 1, 2*hour), grant(hour, 1, hour)}, 0},
	} {
		if n := p.Over([]steps.Segment{{Began: hour, Grants: c.grants}}); n != c.over {
			t.Errorf("%s: %d over, want %d", name, n, c.over)
		}
	}
	first := steps.Segment{Began: 2 * hour, Grants: []steps.Grant{grant(2*hour, 1, 2*hour)}}
	again := steps.Segment{Began: 2*hour - int64(time.Second), Grants: []steps.Grant{grant(hour, 1, 2*hour-1)}}
	if n := p.Over([]steps.Segment{first, again}); n != 1 {
		t.Errorf("a window that is reopened by a small step back: %d over, want 1", n)
	}
}
