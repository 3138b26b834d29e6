// Package storetest holds the tests that every [limiter.Store] must pass. They
// know no store by name: a store is good if it answers as [limiter.Op.Apply]
// says, whatever it is made of.
//
// Typical usage, in a test of a store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) limiter.Store {
//			db := openDatabase(t) // an empty one, closed by t.Cleanup
//			return mystore.New(db)
//		})
//	}
//
//	func BenchmarkStore(b *testing.B) {
//		storetest.Bench(b, func(b *testing.B) limiter.Store { ... })
//	}
//
// The tests should not produce any false positives: a store that fails one
// breaks the rule that is printed with the failure. They may have false
// negatives: races that need more load, faults of connections and servers, and
// anything that happens only after days are not found by them.
//
// No test sleeps. Nearly all of them pass the time in, as with
// [limiter.WithClock], so that they are exact to the nanosecond; a few read the
// store's own clock. The random ones print their seed when they fail; the
// environment variable STORETEST_SEED repeats one.
package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// Run runs all tests, as subtests of t. The function open returns an empty store
// and closes it with t.Cleanup; it is called once for each group of tests. The
// tests of a group run one after another and differ in the limiter's name.
//
// Three methods are tested if the store has them: Sweep(context.Context, int)
// (int64, error), which removes the rows that [limiter.Row.Expired] names, looks at
// its context between statements, and without which the store keeps the rows; Check(context.Context) error; and Close()
// error, which may be called twice.
func Run(t *testing.T, open func(t *testing.T) limiter.Store) {
	groups := []struct {
		name  string
		cases []testCase
	}{
		{"decisions", decisionCases},
		{"refill", refillCases},
		{"windows", windowCases},
		{"reservations", reservationCases},
		{"give back", slices.Concat(refundCases, giveBackCases)},
		{"policy changes", slices.Concat(policyCases, windowPolicyCases)},
		{"clock steps", clockCases},
		{"keys", keyCases},
		{"contract", contractCases},
		{"concurrency", concurrencyCases},
		{"differential", differentialCases},
		{"sweep", sweepCases},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			store := open(t)
			for i, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("the rule: %s", c.rule)
						}
					}()
					c.run(&fixture{T: t, store: store, prefix: fmt.Sprintf("c%d.", i), now: epoch})
				})
			}
		})
	}
	t.Run("vectors", func(t *testing.T) { runVectors(t, open) })
	t.Run("close", func(t *testing.T) { runClose(t, open) })
}

// testCase is one test: rule is the sentence that it shows to be broken.
type testCase struct {
	name, rule string
	run        func(f *fixture)
}

// epoch is the instant at which the cases begin: midnight, so that it is aligned
// to any window that divides a day, and in 2033, so that no store that forgets
// by its own clock forgets what a case has just written.
var epoch = time.Unix(86_400*23_148, 0)

// fixture is what a case works with.
type fixture struct {
	*testing.T
	store  limiter.Store
	prefix string
	now    time.Time // what the limiters' clock says
}

// limiter returns a Limiter on the case's clock; its name is the case's own.
func (f *fixture) limiter(name string, p limiter.Policy) *limiter.Limiter {
	f.Helper()
	return f.on(f.store, f.prefix+name, p, limiter.WithClock(f.clock))
}

// patience is the time limit of an operation: what a store answers is asked for
// here, not how fast a busy machine lets it.
const patience = time.Minute

// on returns a Limiter on any store, with no options but opts and patience.
func (f *fixture) on(s limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	f.Helper()
	l, err := limiter.New(s, name, p, append(opts, limiter.WithTimeout(patience))...)
	if err != nil {
		f.Fatalf("New(%q, %+v): %v", name, p, err)
	}
	return l
}

func (f *fixture) clock() time.Time { return f.now }

// at sets the clock to an offset from the epoch.
func (f *fixture) at(d time.Duration) { f.now = epoch.Add(d) }

// allow is AllowN, which must not fail.
func (f *fixture) allow(l *limiter.Limiter, key string, n int64) limiter.Result {
	f.Helper()
	r, err := l.AllowN(context.Background(), key, n)
	if err != nil {
		f.Fatalf("AllowN(%d) at %v: %v", n, f.now.Sub(epoch), err)
	}
	return r
}

// passes and refuses check whether AllowN passes.
func (f *fixture) passes(l *limiter.Limiter, key string, n int64) {
	f.Helper()
	if r := f.allow(l, key, n); !r.Allowed {
		f.Fatalf("AllowN(%d) at %v = %+v, want it to pass", n, f.now.Sub(epoch), r)
	}
}

func (f *fixture) refuses(l *limiter.Limiter, key string, n int64) {
	f.Helper()
	if r := f.allow(l, key, n); r.Allowed {
		f.Fatalf("AllowN(%d) at %v = %+v, want it to be refused", n, f.now.Sub(epoch), r)
	}
}

// peek is Peek, which must not fail.
func (f *fixture) peek(l *limiter.Limiter, key string) limiter.Result {
	f.Helper()
	r, err := l.Peek(context.Background(), key)
	if err != nil {
		f.Fatalf("Peek at %v: %v", f.now.Sub(epoch), err)
	}
	return r
}

// reserve is Reserve, which must not fail.
func (f *fixture) reserve(l *limiter.Limiter, key string, n int64, maxWait time.Duration) *limiter.Reservation {
	f.Helper()
	r, err := l.Reserve(context.Background(), key, n, maxWait)
	if err != nil {
		f.Fatalf("Reserve(%d, %v) at %v: %v", n, maxWait, f.now.Sub(epoch), err)
	}
	return r
}

// books checks that Reserve books a turn after delay.
func (f *fixture) books(l *limiter.Limiter, key string, n int64, delay time.Duration) *limiter.Reservation {
	f.Helper()
	r := f.reserve(l, key, n, limiter.MaxReserve)
	if !r.Allowed || r.Delay != delay {
		f.Fatalf("Reserve(%d) at %v: Allowed %v, Delay %v, want true, %v",
			n, f.now.Sub(epoch), r.Allowed, r.Delay, delay)
	}
	return r
}

func (f *fixture) cancel(r *limiter.Reservation) {
	f.Helper()
	if err := r.Cancel(context.Background()); err != nil {
		f.Fatalf("Cancel at %v: %v", f.now.Sub(epoch), err)
	}
}

// refund checks whether Refund gives anything back.
func (f *fixture) refund(l *limiter.Limiter, key string, n int64, want bool) {
	f.Helper()
	if gave, err := l.Refund(context.Background(), key, n); err != nil || gave != want {
		f.Fatalf("Refund(%d) at %v = %v, %v, want %v", n, f.now.Sub(epoch), gave, err, want)
	}
}

// refundOf checks whether RefundOf gives anything back to the key "k".
func (f *fixture) refundOf(l *limiter.Limiter, n int64, res limiter.Result, want bool) {
	f.Helper()
	if gave, err := l.RefundOf(context.Background(), "k", n, res); err != nil || gave != want {
		f.Fatalf("RefundOf(%d, %+v) at %v = %v, %v, want %v", n, res, f.now.Sub(epoch), gave, err, want)
	}
}

func (f *fixture) reset(l *limiter.Limiter, key string) {
	f.Helper()
	if err := l.Reset(context.Background(), key); err != nil {
		f.Fatalf("Reset at %v: %v", f.now.Sub(epoch), err)
	}
}

// storeNow returns a reading of the store's own clock.
func (f *fixture) storeNow() time.Time {
	f.Helper()
	s, err := f.store.Do(context.Background(), limiter.Op{
		Kind: limiter.OpLook, Name: f.prefix + "clock", Key: "clock", Policy: limiter.PerSecond(1),
	})
	if err != nil {
		f.Fatalf("a look by the store's own clock: %v", err)
	}
	return time.Unix(0, s.Now)
}

// random returns a source of numbers and prints its seed if the case fails.
func (f *fixture) random() *rand.Rand {
	f.Helper()
	seed := rand.Uint64()
	if env := os.Getenv("STORETEST_SEED"); env != "" {
		var err error
		if seed, err = strconv.ParseUint(env, 10, 64); err != nil {
			f.Fatalf("STORETEST_SEED: %v", err)
		}
	}
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("to repeat: STORETEST_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
