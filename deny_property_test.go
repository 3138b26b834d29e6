package limiter_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// skewed are the clocks of a process and of its store. They run at different rates, and the process may
// freeze or its wall clock may be set.
type skewed struct {
	elapsed, frozen int64 // true time, and the part in which the process was frozen
	wall            int64 // by how much the local wall clock is set wrong
	storeRate, rate int64 // of the clocks, in ppm more than 1
	tick            int64 // of the store's clock
	freezes         bool  // the process freezes; otherwise the wall clock is set, because the cache cannot see both
	stepped         bool  // the wall clock was set
}

func (c *skewed) store() int64 {
	now := start + c.elapsed + c.elapsed/1_000_000*c.storeRate
	return now - now%c.tick
}

func (c *skewed) local() (wall, mono int64) {
	running := c.elapsed - c.frozen
	return start - 77_000_000_000 + c.elapsed + c.elapsed/1_000_000*c.rate + c.wall, 5_000 + running + running/1_000_000*c.rate
}

// pass lets a random time pass.
func (c *skewed) pass(rnd *rand.Rand) {
	most := []time.Duration{time.Microsecond, time.Millisecond, 5 * time.Millisecond, 40 * time.Millisecond}[rnd.IntN(4)]
	c.elapsed += rnd.Int64N(int64(most))
	switch happens := rnd.IntN(20) == 0; {
	case happens && c.freezes:
		d := rnd.Int64N(int64(3 * time.Second))
		c.elapsed += d
		c.frozen += d
	case happens:
		c.stepped = true
		c.wall += rnd.Int64N(int64(time.Second)) - int64(500*time.Millisecond)
	}
}

// farStore is a store of one key. Its operations stop on their way to the store and back, so that a test
// can run others meanwhile. All of them run in one goroutine at a time.
type farStore struct {
	skewed
	row     limiter.Row
	changed int64  // when row changed, by the process's wall clock
	stop    func() // stops the operation that runs now
	asked   int
}

func (w *farStore) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	w.asked++
	stop := w.stop
	stop()
	s := w.apply(op)
	s.Tick = w.tick
	stop()
	return s, nil
}

func (w *farStore) apply(op limiter.Op) limiter.State {
	next, s := op.Apply(w.row, w.store())
	if next != w.row {
		w.row = next
		w.changed, _ = w.local()
	}
	return s
}

// begin returns a function that runs do to its next stop. It reports whether there is one.
func (w *farStore) begin(do func()) (resume func() bool) {
	var yield func(struct{}) bool
	next, _ := iter.Pull(func(y func(struct{}) bool) {
		yield = y
		do()
	})
	return func() bool {
		w.stop = func() { yield(struct{}{}) }
		_, more := next()
		return more
	}
}

// denyHistory is a random history of operations on one key.
type denyHistory struct {
	farStore
	t      *testing.T
	l      *limiter.Limiter
	policy limiter.Policy
	maxAge int64
	takes  bool // the history has no other operations
	booked *limiter.Reservation
	cached int // refusals by the cache
	waits  int // those whose RetryAfter was checked
}

func TestDenyCacheRefusesRightly(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	cached, asked, waits := 0, 0, 0
	for range 1_000 {
		h := &denyHistory{t: t, takes: rnd.IntN(3) == 0, maxAge: 1 + rnd.Int64N(int64(50*time.Millisecond)<<(4*rnd.IntN(2)))}
		h.skewed = skewed{
			storeRate: rnd.Int64N(1001) - 500, rate: rnd.Int64N(1001) - 500, tick: []int64{1, 1000, 1_000_000}[rnd.IntN(3)], freezes: rnd.IntN(3) == 0,
		}
		h.run(rnd)
		if cached, asked, waits = cached+h.cached, asked+h.asked, waits+h.waits; t.Failed() {
			t.Fatalf("the seed is %d", seed)
		}
	}
	if cached < 1_500 || waits < 60 || asked < 2_500 {
		t.Errorf("%d refusals by the cache, %d waits checked and %d operations of the store are too few", cached, waits, asked)
	}
}

func (h *denyHistory) run(rnd *rand.Rand) {
	var before limiter.Policy
	h.policy, before = randomPair(rnd)
	h.l = newLimiter(h.t, &h.farStore, h.policy, limiter.WithDenyCache(1+rnd.IntN(3), time.Duration(h.maxAge)))
	h.l.SetDenyClock(h.local)
	if rnd.IntN(4) == 0 { // another policy wrote the row
		h.apply(limiter.Op{Kind: limiter.OpTake, Policy: before, Cost: 1, MaxWait: time.Second})
	}
	var running []func() bool
	for range 120 {
		h.pass(rnd)
		if len(running) > 0 && rnd.IntN(2) == 0 {
			i := rnd.IntN(len(running))
			if !running[i]() {
				running = append(running[:i], running[i+1:]...)
			}
			continue
		}
		resume := h.begin(h.operation(rnd))
		if resume() && len(running) < 5 {
			running = append(running, resume)
			continue
		}
		finish(resume)
	}
	finish(running...)
}

// finish runs operations to their ends.
func finish(running ...func() bool) {
	for _, resume := range running {
		for resume() {
		}
	}
}

// operation returns a random operation. Most are takes.
func (h *denyHistory) operation(rnd *rand.Rand) func() {
	cost, maxWait := 1+rnd.Int64N(limitOf(h.policy)), time.Duration(0)
	if rnd.IntN(3) == 0 {
		maxWait = time.Duration(rnd.Int64N(int64(500 * time.Millisecond)))
	}
	ctx := context.Background()
	switch kind, booked := rnd.IntN(20), h.booked; {
	case h.takes:
	case kind == 0: // by another process
		return func() { h.apply(limiter.Op{Kind: limiter.OpTake, Policy: h.policy, Cost: cost, MaxWait: maxWait}) }
	case kind < 3:
		return func() { h.must(testenv.ErrorOf(h.l.Refund(ctx, "k", cost))) }
	case kind == 3:
		return func() { h.must(h.l.Reset(ctx, "k")) }
	case kind == 4 && booked != nil:
		return func() { h.must(testenv.ErrorOf(h.l.RefundOf(ctx, "k", cost, booked.Result))) }
	case kind < 6 && booked != nil:
		return func() { h.must(booked.Cancel(ctx)) }
	}
	return func() { h.take(cost, maxWait) }
}

// take reserves. If the cache refuses, take checks whether the store would refuse now and pass after
// RetryAfter.
func (h *denyHistory) take(cost int64, maxWait time.Duration) {
	would := func(now int64) bool {
		_, s := limiter.Op{Kind: limiter.OpTake, Policy: h.policy, Cost: cost, MaxWait: maxWait}.Apply(h.row, now)
		return s.Took
	}
	now := h.store()
	r, err := h.l.Reserve(context.Background(), "k", cost, maxWait)
	h.must(err)
	if r.Allowed {
		h.booked = r
	}
	if r.Source != limiter.SourceDenyCache {
		return
	}
	h.cached++
	if r.Allowed || r.RetryAfter <= 0 || maxWait == 0 && r.Remaining >= cost {
		h.t.Errorf("the cache returns %+v for a request of %d, want a refusal with a RetryAfter", r.Result, cost)
	}
	if would(now) {
		h.t.Errorf("the cache refuses %d within %v, and the store would let it pass on %+v at %d", cost, maxWait, h.row, now)
	}
	if wall, _ := h.local(); h.stepped || wall-h.changed <= h.maxAge {
		return // the cached state may be older than the row
	}
	h.waits++
	const margin = int64(2 * time.Millisecond) // the rates differ by 0.1 %, and a refusal is kept for at most 800 ms
	if !would(now + int64(r.RetryAfter) + margin) {
		h.t.Errorf("the cache says RetryAfter %v for %d within %v, and the store would refuse it then, on %+v at %d", r.RetryAfter, cost, maxWait, h.row, now)
	}
}

func (h *denyHistory) must(err error) {
	if err != nil {
		h.t.Error(err)
	}
}

// backStep is a step back of a store's clock, and an operation on the key before the step or right after
// it.
type backStep struct {
	policy    limiter.Policy
	maxAge    time.Duration
	at, by    time.Duration // when, counted from the first request, and how far
	remote    bool          // the local clock does not make the step
	operation func(t *testing.T, l *limiter.Limiter) error
	operateAt time.Duration
	byOther   bool // a limiter without a cache carries out the operation
}

// wait returns how long after the step the key lets a request pass again, if a client asks every
// 100 ms.
func (s *backStep) wait(t *testing.T, opts ...limiter.Option) time.Duration {
	const pause = 100 * time.Millisecond
	elapsed, back := time.Duration(0), time.Duration(0)
	store := memory.New(memory.WithClock(func() time.Time { return time.Unix(0, start).Add(elapsed - back) }))
	l := newLimiter(t, store, s.policy, opts...)
	operator := l
	if s.byOther {
		operator = newLimiter(t, store, s.policy)
	}
	if opts != nil {
		l.SetDenyClock(func() (wall, mono int64) {
			if s.remote {
				return start + int64(elapsed), int64(elapsed)
			}
			return start + int64(elapsed-back), int64(elapsed)
		})
	}
	for ; elapsed < time.Hour; elapsed += pause {
		if elapsed == s.at {
			back = s.by
		}
		if elapsed == s.operateAt {
			must(t, s.operation(t, operator))
		}
		r, err := l.Allow(t.Context(), "k")
		must(t, err)
		if r.Allowed && elapsed >= s.at {
			return elapsed - s.at
		}
	}
	t.Fatal("the key passes no more")
	return 0
}

func TestDenyCacheAfterStepBack(t *testing.T) {
	t.Parallel()
	const span = 10 * time.Second
	policies := []limiter.Policy{limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: span}, limiter.FixedWindow{Limit: 2, Window: span}}
	operations := map[string]func(t *testing.T, l *limiter.Limiter) error{
		"nothing": func(*testing.T, *limiter.Limiter) error { return nil },
		"Charge": func(t *testing.T, l *limiter.Limiter) error {
			_, err := l.Charge(t.Context(), "k", 1)
			return err
		},
		"Block": func(t *testing.T, l *limiter.Limiter) error { return l.Block(t.Context(), "k", time.Second) },
		"AllowAll": func(t *testing.T, l *limiter.Limiter) error {
			_, err := limiter.AllowAll(t.Context(), limiter.Claim{Limiter: l, Key: "k"}, limiter.Claim{Limiter: l, Key: "other"})
			return err
		},
	}
	for name, operation := range operations {
		for _, remote := range []bool{false, true} {
			where := map[bool]string{false: " on a local clock", true: " on a remote clock"}[remote]
			t.Run(name+where, func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				rnd := rand.New(rand.NewPCG(seed, 1))
				for range 500 {
					s := backStep{
						policy: policies[rnd.IntN(2)], maxAge: []time.Duration{time.Second, time.Minute}[rnd.IntN(2)],
						at: time.Duration(rnd.IntN(90)) * 100 * time.Millisecond, by: time.Duration(rnd.IntN(100)) * 101 * time.Millisecond,
						remote: remote, operation: operation, byOther: !remote && rnd.IntN(2) == 0,
					}
					if s.operateAt = s.at; !remote && s.at > 0 {
						s.operateAt = time.Duration(rnd.Int64N(int64(s.at/100/time.Millisecond))) * 100 * time.Millisecond
					}
					with, without := s.wait(t, limiter.WithDenyCache(1, s.maxAge)), s.wait(t)
					most := without
					if unseen := name == "nothing" || name == "AllowAll"; remote && unseen {
						most = span + limiter.ClockTolerance + s.maxAge
					}
					if with > most {
						t.Fatalf("seed %d: %+v: waits %v, want at most %v; without the cache it waits %v", seed, s, with, most, without)
					}
				}
			})
		}
	}
}
