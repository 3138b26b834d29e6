package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// runAll tests [limiter.AllowAll] on a store that is a [limiter.AllStore].
func runAll(t *testing.T, open func(t *testing.T) limiter.Store) {
	store := open(t)
	if _, ok := store.(limiter.AllStore); !ok {
		t.Skip("the store is not a limiter.AllStore")
	}
	runCases(t, store, slices.Concat(allCases, allCalendarCases, allConcurrencyCases, allDifferentialCases))
}

// claim is a claim of cost n on the key "k".
func claim(l *limiter.Limiter, n int64) limiter.Claim {
	return limiter.Claim{Limiter: l, Key: "k", Cost: n}
}

// all calls AllowAll, which must not fail.
func (f *fixture) all(claims ...limiter.Claim) limiter.AllResult {
	f.Helper()
	res, err := limiter.AllowAll(context.Background(), claims...)
	f.ok(err, "AllowAll")
	if len(res.Each) != len(claims) {
		f.Fatalf("AllowAll at %v: %d results for %d claims", f.now.Sub(epoch), len(res.Each), len(claims))
	}
	return res
}

// row returns the row of the key "k" as its limiter finds it.
func (f *fixture) row(l *limiter.Limiter) limiter.Row {
	f.Helper()
	state, err := f.store.Do(context.Background(), limiter.Op{
		Kind: limiter.OpLook, Name: l.Name(), Key: "k", Policy: l.Policy(), At: f.now.UnixNano(), Timeout: timeLimit,
	})
	f.ok(err, "a look")
	return state.Row
}

// manyLimits returns limiters of n different limits, in both tables.
func (f *fixture) manyLimits(n int, limit func(i int) int64) (ls []*limiter.Limiter) {
	for i := range n {
		var p limiter.Policy = bucket(limit(i), time.Hour)
		if i%2 == 1 {
			p = window(limit(i), 24*time.Hour)
		}
		ls = append(ls, f.limiter(fmt.Sprint("l", i), p))
	}
	return ls
}

var allCases = []testCase{
	{
		"all or none",
		"AllowAll charges every claim or none, says which has room, and when all have",
		func(f *fixture) {
			second, day := f.limiter("second", bucket(2, s)), f.limiter("day", window(5, 24*time.Hour))
			for i, want := range []struct {
				at                     time.Duration
				secondCost, dayCost    int64
				allowed                bool
				binding                int
				retry                  time.Duration
				secondHas, dayHas      bool
				secondLeft, dayCounted int64
			}{
				{0, 1, 3, true, 1, 0, true, true, 1, 3},
				{0, 2, 1, false, 0, s, false, true, 1, 3},
				{0, 1, 3, false, 1, 24 * time.Hour, true, false, 1, 3},
				{0, 2, 3, false, 1, 24 * time.Hour, false, false, 1, 3},
				{0, 1, 1, true, 0, 0, true, true, 0, 4},
				{0, 1, 1, false, 0, s, false, true, 0, 4},
				{s, 1, 1, true, 0, 0, true, true, 0, 5},
				{10 * s, 1, 1, false, 1, 24*time.Hour - 10*s, true, false, 2, 5},
				{24 * time.Hour, 2, 5, true, 0, 0, true, true, 0, 5},
			} {
				f.at(want.at)
				res := f.all(claim(second, want.secondCost), claim(day, want.dayCost))
				if res.Allowed != want.allowed || res.Binding != want.binding || res.RetryAfter != want.retry || res.Source != limiter.SourceStore ||
					res.Each[0].Allowed != want.secondHas || res.Each[1].Allowed != want.dayHas ||
					res.Each[0].Remaining != want.secondLeft || res.Each[1].Used != want.dayCounted {
					f.Fatalf("call %d: %+v, want %+v", i, res, want)
				}
				if left, used := f.peek(second, "k").Remaining, f.peek(day, "k").Used; left != want.secondLeft || used != want.dayCounted {
					f.Fatalf("call %d: %d left and %d used afterwards, want %+v", i, left, used, want)
				}
			}
		},
	},
	{
		"claims of one row are one claim",
		"claims with the same limiter name, kind of policy and key are one claim, and their costs add up",
		func(f *fixture) {
			for name, p := range plain(5, time.Hour, time.Hour) {
				l, same := f.limiter(name, p), f.limiter(name, p)
				another := f.limiter(name+"2", p)
				claims := []limiter.Claim{claim(l, 2), claim(another, 1), claim(same, 1)}
				taken := func(res limiter.AllResult) [4]int64 {
					return [4]int64{res.Taken, res.Each[0].Taken, res.Each[1].Taken, res.Each[2].Taken}
				}
				if res := f.all(claims...); !res.Allowed || res.Remaining != 2 || res.Each[2].Remaining != 2 || taken(res) != [4]int64{2, 2, 1, 1} {
					f.Errorf("%s: %+v, want it to pass with 2 left", name, res)
				}
				if res := f.all(claims...); res.Allowed || res.Each[0].Allowed || res.Each[2].Allowed || !res.Each[1].Allowed || taken(res) != [4]int64{} {
					f.Errorf("%s: %+v, want it to be refused", name, res)
				}
				if res := f.all(claim(l, 1), claim(same, 1)); !res.Allowed || res.Remaining != 0 {
					f.Errorf("%s: %+v, want it to pass with nothing left", name, res)
				}
				if left := f.peek(another, "k").Remaining; left != 4 {
					f.Errorf("%s: %d left of the other limit, want 4", name, left)
				}
			}
			// A bucket and a window of one name are two rows.
			if res := f.all(claim(f.limiter("x", bucket(1, time.Hour)), 1), claim(f.limiter("x", window(1, time.Hour)), 1)); !res.Allowed {
				f.Errorf("a bucket and a window of one name: %+v, want it to pass", res)
			}
		},
	},
	{
		"DoAll refuses what AllowAll never sends",
		"DoAll returns the class of error of CheckOps, and charges nothing",
		func(f *fixture) {
			store := f.store.(limiter.AllStore)
			b, w := f.takeOp(f.limiter("b", bucket(1, time.Hour))), f.takeOp(f.limiter("w", window(1, time.Hour)))
			refuses := func(class error, what string, ops ...limiter.Op) {
				f.Helper()
				states, err := store.DoAll(context.Background(), ops)
				if contract := limiter.CheckOps(ops); !errors.Is(err, class) || !strings.Contains(fmt.Sprint(err), fmt.Sprint(contract)) || states != nil {
					f.Errorf("%s: %+v, %v, want %v", what, states, err, contract)
				}
			}
			refuses(limiter.ErrInvalid, "no operation")
			refuses(limiter.ErrInvalid, "too many", slices.Repeat([]limiter.Op{b}, limiter.MaxClaims+1)...)
			refuses(limiter.ErrInvalid, "unsorted", w, b)
			refuses(limiter.ErrInvalid, "one row twice", b, b)
			later, longer := w, w
			later.At++
			longer.Timeout++
			refuses(limiter.ErrInvalid, "two times", b, later)
			refuses(limiter.ErrInvalid, "two time limits", b, longer)
			unsupported := map[string]func(op *limiter.Op){
				"a MaxWait":     func(op *limiter.Op) { op.MaxWait = 1 },
				"CountRejected": func(op *limiter.Op) { op.Policy = counting(1, time.Hour) },
				"a nil policy":  func(op *limiter.Op) { op.Policy = nil },
				"a pointer":     func(op *limiter.Op) { op.Policy = &limiter.FixedWindow{} },
			}
			for kind := range limiter.OpBlock + 2 {
				if kind != limiter.OpTake {
					unsupported[fmt.Sprint("operation ", kind)] = func(op *limiter.Op) { op.Kind = kind }
				}
			}
			for what, change := range unsupported {
				changed := w
				change(&changed)
				refuses(errors.ErrUnsupported, what, b, changed)
			}
			if states, err := store.DoAll(context.Background(), []limiter.Op{b, w}); err != nil || !states[0].Took || !states[1].Took {
				f.Errorf("afterwards: %+v, %v, want both to take", states, err)
			}
		},
	},
	{
		"a context that has ended charges nothing",
		"AllowAll with a context that has ended is ErrCanceled and changes nothing",
		func(f *fixture) {
			ls := f.manyLimits(2, func(int) int64 { return 2 })
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if res, err := limiter.AllowAll(ctx, claim(ls[0], 1), claim(ls[1], 1)); !errors.Is(err, limiter.ErrCanceled) || res.Allowed {
				f.Errorf("AllowAll: %+v, %v, want ErrCanceled", res, err)
			}
			ops := []limiter.Op{f.takeOp(ls[0]), f.takeOp(ls[1])}
			if _, err := f.store.(limiter.AllStore).DoAll(ctx, ops); !errors.Is(err, limiter.ErrCanceled) {
				f.Errorf("DoAll: %v, want ErrCanceled", err)
			}
			if res := f.all(claim(ls[0], 2), claim(ls[1], 2)); !res.Allowed {
				f.Errorf("afterwards: %+v, want it to pass", res)
			}
		},
	},
}

// takeOp is a take of cost 1 from the key "k".
func (f *fixture) takeOp(l *limiter.Limiter) limiter.Op {
	return limiter.Op{Kind: limiter.OpTake, Name: l.Name(), Key: "k", Policy: l.Policy(), Cost: 1, At: f.now.UnixNano(), Timeout: timeLimit}
}

// someOf returns 1 to [limiter.MaxClaims] of n numbers, in random order.
func someOf(rnd *rand.Rand, n int) []int { return rnd.Perm(n)[:1+rnd.IntN(limiter.MaxClaims)] }
