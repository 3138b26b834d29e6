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

// Run runs all tests as subtests of t. The function open returns an empty store and closes it with
// t.Cleanup. Run calls it once for each group of tests. The tests of a group run one after another
// and use different limiter names.
//
// Run also tests these methods if the store has them:
//
//   - Sweep(context.Context, int64) (int64, error) removes the rows for which [limiter.Row.Expired]
//     returns true, and checks its context between statements. A store without Sweep keeps the
//     rows.
//   - Check(context.Context) error.
//   - DoAll of [limiter.AllStore].
//   - Close() error, which may be called twice.
//
// A store that knows no leases returns [errors.ErrUnsupported] for them. Run then skips their tests.
func Run(t *testing.T, open func(t *testing.T) limiter.Store) {
	groups := []group{
		{"decisions", decisionCases},
		{"reservations", reservationCases},
		{"give back", giveBackCases},
		{"charges and blocks", slices.Concat(chargeCases, blockCases)},
		{"clock steps", clockCases},
		{"keys", keyCases},
		{"contract", contractCases},
		{"concurrency", slices.Concat(concurrencyCases, chargeConcurrencyCases)},
		{"differential", differentialCases},
		{"sweep", sweepCases},
	}
	for _, g := range slices.Concat(groups, ownCases) {
		t.Run(g.name, func(t *testing.T) {
			runCases(t, open(t), g.cases)
		})
	}
	t.Run("leases", func(t *testing.T) { runLeases(t, open(t)) })
	t.Run("all or none", func(t *testing.T) { runAll(t, open) })
	t.Run("vectors", func(t *testing.T) { runVectors(t, open) })
	t.Run("close", func(t *testing.T) { runClose(t, open) })
}

// group is a group of cases.
type group struct {
	name  string
	cases []testCase
}

// runCases runs the cases of a group.
func runCases(t *testing.T, store limiter.Store, cases []testCase) {
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the requirement: %s", c.requirement)
				}
			}()
			c.run(&fixture{T: t, store: store, prefix: fmt.Sprintf("c%d.", i), now: epoch})
		})
	}
}

// testCase is one test. Its requirement is the sentence that a failure disproves.
type testCase struct {
	name, requirement string
	run               func(f *fixture)
}

// forEach makes a case that runs once for each policy, on a limiter and with a clock of its own.
func forEach(policies map[string]limiter.Policy, run func(f *fixture, l *limiter.Limiter)) func(f *fixture) {
	return func(f *fixture) {
		for name, p := range policies {
			f.Run(name, func(t *testing.T) {
				own := &fixture{T: t, store: f.store, prefix: f.prefix + name + ".", now: f.now}
				run(own, own.limiter("l", p))
			})
		}
	}
}

// scripted makes a case that runs calls on one key.
func scripted(p limiter.Policy, calls []call) func(f *fixture) {
	return func(f *fixture) { f.script(f.limiter("l", p), "k", calls) }
}

// epoch is the instant at which the tests begin. It is midnight, so that it is the edge of any
// window that divides a day. It is in 2033, so that no store that forgets by its own clock forgets
// what a test has written.
var epoch = time.Unix(86_400*23_148, 0)

// fixture is what a test works with.
type fixture struct {
	*testing.T
	store  limiter.Store
	prefix string
	now    time.Time // what the limiters' clock says
}

// limiter returns a Limiter on the test's clock, with a name that only this test uses.
func (f *fixture) limiter(name string, p limiter.Policy) *limiter.Limiter {
	f.Helper()
	return f.on(f.store, f.prefix+name, p, limiter.WithClock(f.clock))
}

// timeLimit is the time limit of an operation. It is long, because these tests check what a store
// returns, not how fast a busy machine lets it.
const timeLimit = time.Minute

// on returns a Limiter on any store, with opts and timeLimit.
func (f *fixture) on(s limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	f.Helper()
	l, err := limiter.New(s, name, p, append(opts, limiter.WithTimeout(timeLimit))...)
	f.ok(err, "New(%q, %+v)", name, p)
	return l
}

func (f *fixture) clock() time.Time { return f.now }

// at sets the clock to an offset from the epoch.
func (f *fixture) at(d time.Duration) { f.now = epoch.Add(d) }

// ok ends the case if a call failed.
func (f *fixture) ok(err error, call string, args ...any) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s %v after the beginning: %v", fmt.Sprintf(call, args...), max(0, f.now.Sub(epoch)), err)
	}
}

// allow, peek, charge, block and reserve call a method that must not fail.
func (f *fixture) allow(l *limiter.Limiter, key string, n int64) limiter.Result {
	f.Helper()
	r, err := l.AllowN(context.Background(), key, n)
	f.ok(err, "AllowN(%d)", n)
	return r
}

// passes and refuses check whether AllowN lets a request pass.
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

func (f *fixture) peek(l *limiter.Limiter, key string) limiter.Result {
	f.Helper()
	r, err := l.Peek(context.Background(), key)
	f.ok(err, "Peek")
	return r
}

func (f *fixture) charge(l *limiter.Limiter, key string, n int64) limiter.Result {
	f.Helper()
	r, err := l.Charge(context.Background(), key, n)
	f.ok(err, "Charge(%d)", n)
	return r
}

func (f *fixture) block(l *limiter.Limiter, key string, d time.Duration) {
	f.Helper()
	f.ok(l.Block(context.Background(), key, d), "Block(%v)", d)
}

func (f *fixture) reserve(l *limiter.Limiter, key string, n int64, maxWait time.Duration) *limiter.Reservation {
	f.Helper()
	r, err := l.Reserve(context.Background(), key, n, maxWait)
	f.ok(err, "Reserve(%d, %v)", n, maxWait)
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
	f.ok(r.Cancel(context.Background()), "Cancel")
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
	f.ok(l.Reset(context.Background(), key), "Reset")
}

// storeNow returns a reading of the store's own clock.
func (f *fixture) storeNow() time.Time {
	f.Helper()
	s, err := f.store.Do(context.Background(), limiter.Op{
		Kind: limiter.OpLook, Name: f.prefix + "clock", Key: "clock", Policy: limiter.PerSecond(1),
	})
	f.ok(err, "a look by the store's own clock")
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
