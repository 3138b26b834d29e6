package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// slidingHistory is a random history on one key, of limiters with sliding windows.
type slidingHistory struct {
	*testing.T
	r        *rand.Rand
	policies []slidingPolicy
	limiters []*limiter.Limiter
	oracle   slidingOracle
	now      int64 // by the limiters' clock
	when     int64 // in true time
	only     []int // the kinds of operations; nil means all
	taken    []slidingTaken
	trace    []string
}

// slidingTaken is a take that may be given back.
type slidingTaken struct {
	res           limiter.Result
	booking       *limiter.Reservation
	by            *limiter.Limiter
	cost          int64
	slice, length int64 // that it went into
	act           int64
}

func newSlidingHistory(t *testing.T, seed uint64, policies ...slidingPolicy) *slidingHistory {
	h := &slidingHistory{T: t, r: rand.New(rand.NewPCG(seed, 0)), policies: policies}
	h.now = int64(2e18) + h.r.Int64N(1e9)
	clock := func() time.Time { return time.Unix(0, h.now) }
	store := memory.New(memory.WithClock(clock))
	for _, p := range policies {
		var opts []limiter.Option
		if p.own {
			opts = append(opts, limiter.WithClock(clock))
		}
		l, err := limiter.New(store, "l", p.SlidingWindow, opts...)
		must(t, err)
		h.limiters = append(h.limiters, l)
	}
	return h
}

func (h *slidingHistory) fail(format string, args ...any) {
	h.Helper()
	h.Fatalf(format+"\n%s", append(args, strings.Join(h.trace[max(0, len(h.trace)-25):], "\n"))...)
}

// move moves the clock forward by up to span, and sometimes steps it back by up to back.
func (h *slidingHistory) move(span, back int64) {
	d := h.r.Int64N(span + 1)
	h.now, h.when = h.now+d, h.when+d
	if back > 0 && h.r.IntN(12) == 0 {
		h.now -= h.r.Int64N(back)
	}
}

func (h *slidingHistory) operate() {
	ctx, r, o, n := context.Background(), h.r, &h.oracle, h.r.IntN(len(h.policies))
	p, l, now := h.policies[n], h.limiters[n], h.now
	cost := 1 + r.Int64N(p.Limit)
	if r.IntN(2) == 0 {
		cost = 1
	}
	kind := r.IntN(24)
	if h.only != nil {
		kind = h.only[r.IntN(len(h.only))]
	}
	h.trace = append(h.trace, fmt.Sprintf("at %d: kind %d of %d by %v own %v", now, kind, cost, p.SlidingWindow, p.own))
	switch {
	case kind < 8:
		res, err := l.AllowN(ctx, "k", cost)
		h.took(err, n, cost, 0, res, nil)
	case kind < 12:
		wait := time.Duration(r.Int64N(2 * int64(p.Window)))
		res, err := l.Reserve(ctx, "k", cost, min(wait, limiter.MaxReserve))
		h.took(err, n, cost, int64(min(wait, limiter.MaxReserve)), res.Result, res)
	case kind < 14:
		res, err := l.PeekN(ctx, "k", cost)
		_, passes := o.turn(p, cost, 0, now)
		h.check(err, p, res, passes, cost, 0)
		if !passes || o.length > p.length() && o.want(p, now).Used > 0 { // a look writes what a refusal would
			o.refuse(p, now)
		}
	case kind < 16:
		want := o.want(p, now).Remaining
		res, err := l.AllowUpTo(ctx, "k", cost)
		if res.Taken != min(cost, want) {
			h.fail("AllowUpTo(%d) took %d of %d", cost, res.Taken, want)
		}
		h.took(err, n, max(1, res.Taken), 0, res, nil)
	case kind < 17:
		cost = 1 + r.Int64N(2*p.Limit)
		res, err := l.Charge(ctx, "k", cost)
		room := o.charge(p, cost, now, h.when)
		h.check(err, p, res, room, 1, 0)
		if _, passes := o.turn(p, 1, 0, now); passes != (res.RetryAfter == 0) {
			h.fail("RetryAfter %v, the next passes: %t", res.RetryAfter, passes)
		}
		h.keep(slidingTaken{res: res, by: l, cost: cost, slice: o.log[len(o.log)-1].slice, length: o.length})
	case kind < 18:
		gave, err := l.Refund(ctx, "k", cost)
		if want := o.refund(cost, 0, now); err != nil || gave != want {
			h.fail("Refund(%d): %v, %v; want %v", cost, gave, err, want)
		}
	case kind < 20 && len(h.taken) > 0:
		b := h.taken[r.IntN(len(h.taken))]
		gave, err := b.by.RefundOf(ctx, "k", cost, b.res)
		want := o.length == b.length && o.refund(min(cost, b.cost), b.slice, now)
		if err != nil || gave != want {
			h.fail("RefundOf(%d, %+v) of slice %d: %v, %v; want %v", cost, b, b.slice, gave, err, want)
		}
	case kind < 22 && len(h.taken) > 0:
		if b := h.taken[r.IntN(len(h.taken))]; b.booking != nil {
			if err := b.booking.Cancel(ctx); err != nil {
				h.fail("%v", err)
			}
			h.taken = nil // a second cancel does nothing
			o.cancel(b.cost, b.slice, b.length, b.act, now)
		}
	case kind == 22 && r.IntN(4) == 0:
		d := 1 + r.Int64N(2*int64(p.Window))
		if err := l.Block(ctx, "k", time.Duration(d)); err != nil {
			h.fail("%v", err)
		}
		o.block(p, d, now)
	case kind == 23 && r.IntN(8) == 0:
		if err := l.Reset(ctx, "k"); err != nil {
			h.fail("%v", err)
		}
		*o, h.taken = slidingOracle{length: o.length}, nil
	}
}

func (h *slidingHistory) keep(b slidingTaken) {
	h.taken = append(h.taken[max(0, len(h.taken)-5):], b)
}

// took checks a take against the log.
func (h *slidingHistory) took(err error, n int, cost, maxWait int64, res limiter.Result, b *limiter.Reservation) {
	h.Helper()
	p := h.policies[n]
	act, passes := h.oracle.take(p, cost, maxWait, h.now, h.when)
	h.check(err, p, res, passes, cost, maxWait)
	if !passes {
		return
	}
	if b != nil && int64(b.Delay) != act-h.now {
		h.fail("Delay %v, want %d", b.Delay, act-h.now)
	}
	h.keep(slidingTaken{res, b, h.limiters[n], cost, h.oracle.last, h.oracle.length, act})
}

// check checks a result. The wait of a refusal must be the shortest one after which the request passes.
func (h *slidingHistory) check(err error, p slidingPolicy, res limiter.Result, allowed bool, cost, maxWait int64) {
	h.Helper()
	want := h.oracle.want(p, h.now)
	want.Allowed, want.Taken, want.RetryAfter = allowed, res.Taken, res.RetryAfter
	if got := res.Visible(); err != nil || got != want {
		h.fail("%+v, %v\nwant %+v\nof %+v", got, err, want, h.oracle)
	}
	if res.RetryAfter == 0 {
		if !allowed {
			h.fail("a refusal without RetryAfter")
		}
		return
	}
	o, wait := h.oracle.clone(), int64(res.RetryAfter)
	o.refuse(p, h.now)
	_, then := o.turn(p, cost, maxWait, h.now+wait)
	if _, earlier := o.turn(p, cost, maxWait, h.now+wait-1); !then || earlier {
		h.fail("RetryAfter %v: passes then %v, 1 ns earlier %v", res.RetryAfter, then, earlier)
	}
}

// passed returns what passed in the stretch of true time of length span before and at end.
func (h *slidingHistory) passed(span, end int64) (sum int64) {
	for _, e := range h.oracle.log {
		if e.when >= end-span && e.when <= end {
			sum += e.cost
		}
	}
	return sum
}

func TestSlidingWindowIsAnExactLog(t *testing.T) {
	t.Parallel()
	window := func(n int64, d time.Duration, own bool) slidingPolicy {
		return slidingPolicy{limiter.SlidingWindow{Limit: n, Window: d}, own}
	}
	for name, c := range map[string]struct {
		policies []slidingPolicy
		back     time.Duration
	}{
		"one policy":             {policies: []slidingPolicy{window(5, time.Minute, false)}},
		"its own clock":          {policies: []slidingPolicy{window(7, 1601*time.Millisecond+1, true)}, back: 4 * time.Second},
		"a clock set back":       {policies: []slidingPolicy{window(5, 17*time.Second, false)}, back: time.Minute},
		"a clock set back a bit": {policies: []slidingPolicy{window(5, time.Second, false)}, back: 2100 * time.Millisecond},
		"two limits":             {policies: []slidingPolicy{window(5, time.Second, false), window(9, time.Second, false)}},
		"two windows":            {policies: []slidingPolicy{window(5, time.Minute, false), window(9, 7*time.Minute, false)}},
		"two close windows":      {policies: []slidingPolicy{window(5, 61*time.Second, false), window(5, time.Minute, false)}, back: 10 * time.Second},
		"far windows, clocks":    {policies: []slidingPolicy{window(3, 16*time.Millisecond, false), window(4, time.Hour, false)}, back: 2 * time.Hour},
		"two windows, own clock": {
			policies: []slidingPolicy{window(1, 2*time.Minute, true), window(1, 20*time.Second, true)},
			back:     2 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 300 {
				seed := rand.Uint64()
				h := newSlidingHistory(t, seed, c.policies...)
				h.trace = append(h.trace, fmt.Sprintf("seed %d", seed))
				h.oracle.length = c.policies[0].length()
				for range 100 {
					p := c.policies[h.r.IntN(len(c.policies))]
					h.move([]int64{0, 1, int64(p.Slice()), int64(p.Window) / 3, 2 * int64(p.Window)}[h.r.IntN(5)], int64(c.back))
					h.operate()
				}
			}
		})
	}
}

func TestSlidingWindowBounds(t *testing.T) {
	t.Parallel()
	takes, all := []int{0, 1, 2, 14, 15}, []int{0, 1, 2, 3, 9, 10, 12, 14, 15, 17, 18, 19, 20, 21, 22, 23}
	const window, most = 1600 * time.Millisecond, 9
	for name, c := range map[string]struct {
		only  []int
		limit int64 // of another policy
		back  time.Duration
	}{
		"takes, bookings and what gives back": {only: all, limit: most},
		"two limits in turn":                  {only: all, limit: 3},
		"a clock that is set back":            {only: takes, limit: most, back: time.Minute},
		"a clock that is set back a little":   {only: takes, limit: most, back: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 300 {
				seed, own := rand.Uint64(), rand.IntN(2) == 0
				h := newSlidingHistory(t, seed, slidingPolicy{limiter.SlidingWindow{Limit: most, Window: window}, own},
					slidingPolicy{limiter.SlidingWindow{Limit: c.limit, Window: window}, own})
				h.only, h.oracle.length = c.only, int64(window/16)
				for range 150 {
					h.move([]int64{0, 1, int64(window) / 16, int64(window) / 8, 2 * int64(window)}[h.r.IntN(5)], int64(c.back))
					h.operate()
				}
				for _, e := range h.oracle.log {
					if got := h.passed(int64(window), e.when); got > most {
						h.fail("seed %d: %d passed within %v, want at most %d", seed, got, window, most)
					}
				}
			}
		})
	}
	t.Run("no refusal with room in 17 slices", func(t *testing.T) {
		t.Parallel()
		for range 100 {
			h := newSlidingHistory(t, rand.Uint64(), slidingPolicy{limiter.SlidingWindow{Limit: most, Window: window}, false})
			refused := 0
			for range 300 {
				h.move(int64(window)/16, 0)
				cost := 1 + h.r.Int64N(most)
				res, err := h.limiters[0].AllowN(context.Background(), "k", cost)
				if h.took(err, 0, cost, 0, res, nil); res.Allowed {
					continue
				}
				refused++
				if got := h.passed(int64(window+window/16)-1, h.when); got+cost <= most {
					h.fail("%d was refused with %d of %d", cost, got, most)
				}
			}
			if refused < 50 {
				t.Errorf("%d refusals", refused)
			}
		}
	})
}
