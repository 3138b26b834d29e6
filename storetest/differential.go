package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

var differentialCases = func() (cases []testCase) {
	for _, d := range differentials {
		cases = append(cases, testCase{
			d.name,
			"a store returns for every operation what the memory store returns, and leaves what it leaves",
			func(f *fixture) { f.differential(d.n, d.policies...) },
		})
	}
	return cases
}()

// reference is the memory store, which is held against [limiter.Op.Apply] as it
// goes.
type reference struct {
	*memory.Store
	rows map[string]limiter.Row // by key
}

func (r reference) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	state, err := r.Store.Do(ctx, op)
	next, want := op.Apply(r.rows[op.Key], op.At)
	r.rows[op.Key] = next
	if err == nil && state != want {
		err = fmt.Errorf("the memory store reports %+v, Op.Apply says %+v", state, want)
	}
	return state, err
}

// bookings are the same booking in both stores.
type bookings struct {
	got, want *limiter.Reservation
	key       string
}

// results are those of the same request in both stores.
type results struct {
	got, want limiter.Result
	key       string
}

// duel is one differential: the same operations on the store and the reference.
type duel struct {
	*fixture
	rnd        *rand.Rand
	reference  reference
	got, want  []*limiter.Limiter // one a policy
	gotSpy     *spy
	wantSpy    *spy
	bookings   []bookings
	results    []results
	generation int       // of keys
	high       time.Time // the latest that the clock has said in this generation
	trace      []string
}

// differential runs n random operations under policies that alternate.
func (f *fixture) differential(n int, policies ...limiter.Policy) {
	f.Helper()
	d := &duel{fixture: f, rnd: f.random(), reference: reference{memory.New(), map[string]limiter.Row{}}}
	d.gotSpy, d.wantSpy = &spy{Store: f.store}, &spy{Store: d.reference}
	for _, p := range policies {
		d.got = append(d.got, f.on(d.gotSpy, f.prefix+"l", p, limiter.WithClock(f.clock)))
		d.want = append(d.want, f.on(d.wantSpy, f.prefix+"l", p, limiter.WithClock(f.clock)))
	}
	d.high = f.now
	for i := range n {
		d.operate(i)
	}
}

// operate moves the clock and does one operation on both sides.
func (d *duel) operate(i int) {
	d.Helper()
	d.tick()
	key := fmt.Sprintf("%d-%d", d.generation, d.rnd.IntN(3))
	p := 0
	if d.rnd.IntN(3) == 0 {
		p = d.rnd.IntN(len(d.got))
	}
	got, want := d.got[p], d.want[p]
	n := 1 + d.rnd.Int64N(limitOf(got.Policy()))
	if d.rnd.IntN(2) == 0 {
		n = 1
	}
	ctx := context.Background()
	var a, b any // the results
	var errA, errB error
	what := ""
	switch kind := d.rnd.IntN(115); {
	case kind >= 110:
		n := time.Duration(1 + d.rnd.Int64N(int64(5*s)))
		what = fmt.Sprintf("Block(%v)", n)
		errA, errB = got.Block(ctx, key, n), want.Block(ctx, key, n)
	case kind >= 105:
		n += d.rnd.Int64N(3 * limitOf(got.Policy()))
		what = fmt.Sprintf("Charge(%d)", n)
		var ra, rb limiter.Result
		ra, errA = got.Charge(ctx, key, n)
		rb, errB = want.Charge(ctx, key, n)
		a, b = ra, rb
		d.results = append(d.results, results{ra, rb, key})
	case kind >= 100:
		n += d.rnd.Int64N(3)
		what = fmt.Sprintf("AllowUpTo(%d)", n)
		var ra, rb limiter.Result
		ra, errA = got.AllowUpTo(ctx, key, n)
		rb, errB = want.AllowUpTo(ctx, key, n)
		if errors.Is(errA, errors.ErrUnsupported) && errors.Is(errB, errors.ErrUnsupported) {
			return // of windows that count refusals, in both
		}
		a, b = ra, rb
		d.results = append(d.results, results{ra, rb, key})
	case kind < 45:
		n *= int64(min(1, d.rnd.IntN(8))) // now and then a cost of 0
		what = fmt.Sprintf("AllowN(%d)", n)
		var ra, rb limiter.Result
		ra, errA = got.AllowN(ctx, key, n)
		rb, errB = want.AllowN(ctx, key, n)
		a, b = ra, rb
		d.results = append(d.results, results{ra, rb, key})
	case kind < 70:
		wait := time.Duration(d.rnd.Int64N(int64(8 * s)))
		n *= int64(min(1, d.rnd.IntN(8)))
		what = fmt.Sprintf("Reserve(%d, %v)", n, wait)
		var ra, rb *limiter.Reservation
		ra, errA = got.Reserve(ctx, key, n, wait)
		rb, errB = want.Reserve(ctx, key, n, wait)
		a, b = fmt.Sprintf("%+v %v", ra.Result, ra.Delay), fmt.Sprintf("%+v %v", rb.Result, rb.Delay)
		if errors.Is(errA, errors.ErrUnsupported) && errors.Is(errB, errors.ErrUnsupported) {
			return // of windows that count refusals, in both
		}
		d.bookings = append(d.bookings, bookings{ra, rb, key})
		d.results = append(d.results, results{ra.Result, rb.Result, key})
	case kind < 80:
		n = d.rnd.Int64N(n + 1)
		what = fmt.Sprintf("PeekN(%d)", n)
		a, errA = got.PeekN(ctx, key, n)
		b, errB = want.PeekN(ctx, key, n)
	case kind < 88:
		what = fmt.Sprintf("Refund(%d)", n)
		a, errA = got.Refund(ctx, key, n)
		b, errB = want.Refund(ctx, key, n)
	case kind < 91:
		if len(d.results) == 0 {
			return
		}
		of := d.results[len(d.results)-1-d.rnd.IntN(min(5, len(d.results)))]
		what, key = fmt.Sprintf("RefundOf(%d, %+v)", n, of.want), of.key
		a, errA = got.RefundOf(ctx, key, n, of.got)
		b, errB = want.RefundOf(ctx, key, n, of.want)
	case kind < 97:
		if len(d.bookings) == 0 {
			return
		}
		last := len(d.bookings) - 1 - d.rnd.IntN(min(3, len(d.bookings)))
		booking := d.bookings[last]
		what, key = "Cancel", booking.key
		d.gotSpy.state, d.wantSpy.state = limiter.State{}, limiter.State{}
		errA, errB = booking.got.Cancel(ctx), booking.want.Cancel(ctx)
	default:
		what = "Reset"
		errA, errB = got.Reset(ctx, key), want.Reset(ctx, key)
	}
	d.trace = append(d.trace, fmt.Sprintf("op %d at %v: %s on %s by %+v", i, d.now.Sub(epoch), what, key, got.Policy()))
	if errA != nil || errB != nil {
		d.fail("errors %v, want %v", errA, errB)
	}
	if a != b {
		d.fail("result\n %+v, want\n %+v", a, b)
	}
	d.compare()
}

// tick moves the clock: mostly forward, now and then back, by up to hours.
func (d *duel) tick() {
	spans := []time.Duration{0, ns, 10 * ms, s, s, 10 * s, time.Minute, 3 * time.Hour}
	span := spans[d.rnd.IntN(len(spans))]
	if span > 0 {
		span = time.Duration(d.rnd.Int64N(int64(span))) + 1
	}
	if d.rnd.IntN(8) == 0 {
		span = -span
	}
	if d.now = d.now.Add(span); d.now.Before(epoch) {
		d.now = epoch
	}
	if d.now.After(d.high) {
		d.high = d.now
	}
	// A store may forget what has expired. Another policy, or a clock that was
	// set back, would then meet a row in one place and none in the other.
	for _, row := range d.reference.rows {
		if row != (limiter.Row{}) && row.Expired(d.high.UnixNano()) {
			d.generation++
			clear(d.reference.rows)
			d.bookings, d.results, d.high = nil, nil, d.now
			return
		}
	}
}

// compare checks what the stores reported.
func (d *duel) compare() {
	d.Helper()
	got, want := d.gotSpy.state, d.wantSpy.state
	if got.Took != want.Took || got.Taken != want.Taken {
		d.fail("Took %v of %d, want %v of %d", got.Took, got.Taken, want.Took, want.Taken)
	}
	switch d.gotSpy.op.Kind {
	case limiter.OpTake, limiter.OpLook, limiter.OpTakeUpTo, limiter.OpCharge:
		if got.Row != want.Row || got.Now != want.Now || got.Tick > 1 {
			d.fail("state\n %+v, want\n %+v", got, want)
		}
	}
}

func (d *duel) fail(format string, args ...any) {
	d.Helper()
	last := d.trace[max(0, len(d.trace)-25):]
	d.Fatalf(format+"\n%s", append(args, strings.Join(last, "\n"))...)
}
