package borrow

import (
	"time"

	"github.com/sqlimit/limiter"
)

// instant is a reading of the process's clocks, in nanoseconds. The monotonic clock may stand still while a
// process is frozen, and the wall clock may be set.
type instant struct{ wall, mono int64 }

// slack is how far the wall clock may go back, or the clocks may differ, without consequences.
const slack = int64(10 * time.Millisecond)

// readClocks returns a function that reads the clocks.
func readClocks() func() instant {
	base := time.Now()
	return func() instant {
		t := time.Now()
		return instant{t.UnixNano(), int64(t.Sub(base))}
	}
}

// holding is tokens of a key that were charged in the store and not spent yet.
type holding struct {
	policy   bucket
	tokens   int64
	charged  instant // before the statement was sent that charged the oldest of them
	answered instant // when the store returned state
	state    limiter.State
}

// fresh reports whether the tokens may still be spent. In a process that was frozen or restored they may not.
func (h *holding) fresh(now instant, ttl time.Duration) bool {
	wall, mono := now.wall-h.charged.wall, now.mono-h.charged.mono
	return max(wall, mono) < int64(ttl) && wall >= -slack
}

// found returns the state of the key as if the tokens had not been charged: that of a take which they do not
// cover.
func (h *holding) found() limiter.State {
	s := h.state
	s.Took, s.Taken = false, 0
	if h.tokens > 0 {
		s.Row.FullAt = max(0, s.Row.FullAt-h.tokens*s.Row.Period)
	}
	return s
}

// spend takes cost from the tokens, and returns the state of the take.
func (h *holding) spend(cost int64, now instant) limiter.State {
	h.tokens -= cost
	s := h.found()
	s.Took = true
	s.Now += max(0, now.mono-h.answered.mono)
	return s
}

// add adds what a statement has charged, which was sent at the instant.
func (h *holding) add(s limiter.State, sent, answered instant) {
	if h.tokens == 0 {
		h.charged = sent
	}
	h.tokens += s.Taken
	h.state, h.answered = s, answered
}

// refund returns how many of the tokens to give back. The others may have come back already: the bucket may
// have refilled since they were charged, and others may have spent that. A large debt at the charge does not
// exclude this, because other processes may have given back. The time of a part of a token is carried over to
// the next call for the key.
func (h *holding) refund(now instant, carried *int64) int64 {
	step := h.state.Row.Period
	age := max(now.wall-h.charged.wall, now.mono-h.charged.mono, 0) + *carried
	if *carried = 0; age/step >= h.tokens {
		return 0
	}
	*carried = age % step
	return h.tokens - age/step
}

// copied reports whether the clocks have moved apart since the tokens were charged, as in a machine that was
// restored from a snapshot. Another copy of the process may have the same tokens.
func (h *holding) copied(now instant) bool {
	apart := (now.wall - h.charged.wall) - (now.mono - h.charged.mono)
	return max(apart, -apart) > slack
}
