package prove_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

const (
	// stepsARound is how many steps a round makes.
	stepsARound = 10
	year        = 8766 * time.Hour
	// farthest is how far the clock goes from this machine's: all of it lies between 1970
	// and 2079.
	farthest = 40 * year
)

// clockStep returns where to set a clock that is so far ahead: by 1 ms to 10 years
// forwards or backwards.
func clockStep(r *rand.Rand, ahead time.Duration) time.Duration {
	by := distance(r, 10*year)
	if r.IntN(2) == 0 && ahead-by > -farthest || ahead+by > farthest {
		return ahead - by
	}
	return ahead + by
}

// distance is 1 ms to most, each order of magnitude as likely as another.
func distance(r *rand.Rand, most time.Duration) time.Duration {
	by := time.Millisecond
	for by < most && r.IntN(12) > 0 {
		by *= 10
	}
	by = min(most, time.Duration((0.1+0.9*r.Float64())*float64(by))).Round(time.Microsecond)
	return max(by, time.Millisecond)
}

func TestClockSteps(t *testing.T) {
	server, clock := cluster.NewWithClock(t, durable...)
	migrate(t, server.DSN())
	of := stores(t, 2, server.DSN()+"&pool_max_conns=4")
	for _, c := range []struct {
		name  string
		quiet bool
	}{
		{"clock steps between statements", true},
		{"clock steps under way", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			proof.Rounds(t, c.name, campaign.Sizes{CI: 1, Nightly: 20, Release: 60}, func(t *testing.T, r *campaign.Round) {
				h := newTimeline(r.Seed, clock.Now())
				began, made := time.Now(), []time.Duration(nil)
				stop := h.callers(t.Context(), r.Rand, 16, of)
				for range stepsARound {
					pause(t.Context(), r, 150*time.Millisecond)
					before := clock.Ahead()
					if c.quiet {
						h.stepBetween(t, r, server.DSN(), clock)
					} else {
						clock.Set(clockStep(r.Rand, before))
					}
					made = append(made, clock.Ahead()-before)
					r.Count(campaign.ClockSteps, 1)
				}
				pause(t.Context(), r, 150*time.Millisecond)
				stop()
				if c.quiet {
					h.owing(nil)
				}
				h.judge(t, r, c.quiet, time.Since(began), made)
				h.comeBack(t, r, of[0])
			})
		})
	}
}

// stepBetween makes a step while no statement is under way, so that it is known of each
// grant whether it came before or after.
func (h *timeline) stepBetween(t *testing.T, r *campaign.Round, dsn string, clock *cluster.Clock) {
	t.Helper()
	h.gate.Lock()
	defer h.gate.Unlock()
	h.settle(t, dsn)
	clock.Set(clockStep(r.Rand, clock.Ahead()))
	h.segment(clock.Now())
}

// settle ends a segment when no statement is under way any more.
func (h *timeline) settle(t *testing.T, dsn string) {
	t.Helper()
	quiet(t, dsn)
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	owed, err := debts(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	h.owing(owed)
}

// judge counts what was granted beside what may have been.
func (h *timeline) judge(t *testing.T, r *campaign.Round, quiet bool, took time.Duration, made []time.Duration) {
	t.Helper()
	r.Count(campaign.Operations, h.calls)
	var over int64
	for _, k := range h.keys {
		var more int64
		if quiet {
			more = kinds.Bounds(k.policy).Over(k.segments)
		} else {
			for _, g := range k.segments[0].Grants {
				more += g.Cost
			}
			more = max(0, more-kinds.Bounds(k.policy).AtMost(took, made))
		}
		if over += more; more > 0 {
			t.Logf("%s: %d over after steps of %v: %+v", k.name, more, made, k.segments)
		}
	}
	r.None(campaign.OverAdmitted, over)
	if err := errors.Join(h.refused[:min(len(h.refused), 3)]...); err != nil {
		t.Errorf("%d refusals, after steps of %v: %v", len(h.refused), made, err)
	}
	if err := errors.Join(h.failed[:min(len(h.failed), 3)]...); err != nil {
		t.Errorf("%d takes failed, after steps of %v: %v", len(h.failed), made, err)
	}
}

// comeBack waits until each key that can be granted soon is: when what it owed is over, and
// what is taken for statements that wait for each other, plus the time of a recovery.
func (h *timeline) comeBack(t *testing.T, r *campaign.Round, store limiter.Store) {
	t.Helper()
	began := time.Now()
	rec := &recorder{Store: store}
	for _, k := range h.keys {
		if kinds.Lockout(k.policy) > time.Second {
			continue
		}
		most := kinds.Lockout(k.policy) + limiter.ClockTolerance + recovery
		for !h.take(t.Context(), rec, k, 1) {
			if took := time.Since(began); took > most {
				t.Errorf("%s: a key is not granted anything for %v", k.name, took)
				break
			}
			wait(t.Context(), 5*time.Millisecond)
		}
	}
	r.Most("until each key was granted again", time.Since(began))
}
