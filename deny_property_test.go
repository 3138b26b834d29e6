package limiter_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// world is a store far away, and clocks that agree on nothing. All that happens
// does so in one goroutine at a time, in an order that rnd chooses: operations stop
// on their way to the store, and on their way back.
type world struct {
	t   *testing.T
	rnd *rand.Rand
	row limiter.Row // the only key's

	elapsed, frozen int64 // true time, and the part in which the process stood still
	wall            int64 // what the local wall clock is off by
	storeRate, rate int64 // how fast the clocks go, in ppm of what they should
	tick            int64
	stop            func() // of the operation that is running
	changed, maxAge int64  // when the row last changed, and how old a refusal may be
	stepped         bool   // the local wall clock was
	cached, asked   int
	waits           int // cached refusals whose RetryAfter was checked
}

func (w *world) storeClock() int64 {
	now := start + w.elapsed + w.elapsed/1_000_000*w.storeRate
	return now - now%w.tick
}

func (w *world) localClock() (wall, mono int64) {
	running := w.elapsed - w.frozen
	return start - 77_000_000_000 + w.elapsed + w.elapsed/1_000_000*w.rate + w.wall, 5_000 + running + running/1_000_000*w.rate
}

// Do is the store's.
func (w *world) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	w.asked++
	stop := w.stop
	stop()
	next, s := op.Apply(w.row, w.storeClock())
	s.Tick = w.tick
	w.write(next)
	stop()
	return s, nil
}

// would reports whether the store would grant a take at an instant of its clock.
func (w *world) would(p limiter.Policy, cost int64, maxWait time.Duration, now int64) bool {
	_, s := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: cost, MaxWait: maxWait}.Apply(w.row, now)
	return s.Took
}

// others is a take by another process.
func (w *world) others(p limiter.Policy, cost int64, maxWait time.Duration) {
	next, _ := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: cost, MaxWait: maxWait}.Apply(w.row, w.storeClock())
	w.write(next)
}

func (w *world) write(next limiter.Row) {
	if next != w.row {
		w.row, w.changed = next, w.elapsed
	}
}

// take asks l and checks the result if the cache decided.
func (w *world) take(l *limiter.Limiter, cost int64, maxWait time.Duration) *limiter.Reservation {
	now := w.storeClock()
	r, err := l.Reserve(context.Background(), "k", cost, maxWait)
	if err != nil {
		w.t.Fatalf("Reserve: %v", err)
	}
	if r.Source != limiter.SourceDenyCache {
		return r
	}
	w.cached++
	if r.Allowed || r.RetryAfter <= 0 || maxWait == 0 && r.Remaining >= cost {
		w.t.Fatalf("the cache returns %+v for a request of %d", r.Result, cost)
	}
	if w.would(l.Policy(), cost, maxWait, now) {
		w.t.Fatalf("the cache refuses %d within %v, %+v, which the store would grant on %+v at %d", cost, maxWait, r.Result, w.row, now)
	}
	if w.stepped || w.elapsed-w.changed <= w.maxAge {
		return r // what is cached may be of before others took
	}
	w.waits++
	const margin = int64(2 * time.Millisecond) // the clocks' rates differ by a thousandth of at most a second
	if !w.would(l.Policy(), cost, maxWait, now+int64(r.RetryAfter)+margin) {
		w.t.Fatalf("the cache says to come back in %v to take %d within %v, which is refused then, on %+v at %d", r.RetryAfter, cost, maxWait, w.row, now)
	}
	return r
}

func TestTheDenyCacheRefusesOnlyWhatTheStoreWouldRefuse(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("the seed is %d", seed)
		}
	}()
	rnd := rand.New(rand.NewPCG(seed, 1))
	cached, asked, waits := 0, 0, 0
	for range 2_000 {
		w := &world{t: t, rnd: rnd, tick: []int64{1, 1000, 1_000_000}[rnd.IntN(3)]}
		w.storeRate, w.rate = rnd.Int64N(1001)-500, rnd.Int64N(1001)-500
		w.run()
		cached, asked, waits = cached+w.cached, asked+w.asked, waits+w.waits
	}
	t.Logf("%d refusals by the cache, %d of them asked when to come back, %d operations of the store", cached, waits, asked)
	if cached < 5_000 || waits < 200 || asked < 5_000 {
		t.Error("that shows little")
	}
}

// run is one history of a few operations at a time.
func (w *world) run() {
	p, before := randomPair(w.rnd)
	w.maxAge = 1 + w.rnd.Int64N([]int64{int64(50 * time.Millisecond), int64(time.Second)}[w.rnd.IntN(2)])
	l := newLimiter(w.t, w, p, limiter.WithDenyCache(1+w.rnd.IntN(3), time.Duration(w.maxAge)))
	l.SetDenyClock(w.localClock)
	if w.rnd.IntN(4) == 0 { // the key was another policy's before
		w.others(before, 1, time.Second)
		w.others(p, 1, 0)
	}
	freezes := w.rnd.IntN(3) == 0             // or steps of the wall clock: who meets both at once cannot see it
	calls := []int{14, 20, 20}[w.rnd.IntN(3)] // with all kinds of them, or takes alone
	var reservations []*limiter.Reservation
	var running []func() bool
	for range 120 {
		w.pass(freezes)
		if len(running) > 0 && w.rnd.IntN(2) == 0 {
			i := w.rnd.IntN(len(running))
			if !running[i]() {
				running = append(running[:i], running[i+1:]...)
			}
			continue
		}
		cost, maxWait := 1+w.rnd.Int64N(limitOf(p)), time.Duration(0)
		if w.rnd.IntN(3) == 0 {
			maxWait = time.Duration(w.rnd.Int64N(int64(500 * time.Millisecond)))
		}
		var do func()
		switch kind := w.rnd.IntN(calls); {
		case kind < 14:
			do = func() {
				if r := w.take(l, cost, maxWait); r.Allowed {
					reservations = append(reservations, r)
				}
			}
		case kind < 15:
			w.others(p, cost, maxWait)
			continue
		case kind < 17:
			do = func() { w.must(errorOf(l.Refund(context.Background(), "k", cost))) }
		case kind < 18:
			do = func() { w.must(l.Reset(context.Background(), "k")) }
		default:
			if len(reservations) == 0 {
				continue
			}
			r := reservations[len(reservations)-1]
			do = func() { w.must(r.Cancel(context.Background())) }
		}
		if resume := w.begin(do); resume() && len(running) < 5 {
			running = append(running, resume)
		} else {
			for resume() {
			}
		}
	}
	for _, resume := range running {
		for resume() {
		}
	}
}

// begin returns a function that runs do on to its next stop, and reports whether
// there is one.
func (w *world) begin(do func()) (resume func() bool) {
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

// pass lets some time pass, and something happen to the local clocks.
func (w *world) pass(freezes bool) {
	d := w.rnd.Int64N([]int64{1_000, int64(time.Millisecond), int64(5 * time.Millisecond), int64(40 * time.Millisecond)}[w.rnd.IntN(4)])
	w.elapsed += d
	switch w.rnd.IntN(20) {
	case 0:
		if freezes {
			d = w.rnd.Int64N(int64(3 * time.Second))
			w.elapsed += d
			w.frozen += d
		}
	case 1:
		if !freezes {
			w.stepped = true
			w.wall += w.rnd.Int64N(int64(time.Second)) - int64(500*time.Millisecond)
		}
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}
