package witness_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/witness"
)

const (
	start = 1_800_000_000_000_000_000
	ms    = int64(time.Millisecond)
)

var (
	bucket = limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Millisecond}
	window = limiter.FixedWindow{Limit: 10, Window: 20 * time.Millisecond}
)

// concurrent returns a history of n calls as a store gives it that carries them out one
// after another, while each lasts as long as some others: their clocks are read before
// the row is locked, and so not in the row's order. A share of them gives back.
func concurrent(r *rand.Rand, policy limiter.Policy, row limiter.Row, n int, refunds bool) (calls []witness.Call, left limiter.Row) {
	var mine []int64 // what was granted and can be given back
	for i := range int64(n) {
		at := start + i*ms
		c := witness.Call{Began: at - r.Int64N(5*ms), Ended: at + r.Int64N(5*ms)}
		c.Op = limiter.Op{Kind: limiter.OpTake, Policy: policy, Cost: 1 + r.Int64N(3)}
		switch {
		case r.IntN(20) == 0:
			c.Op.Kind, c.Op.Cost = limiter.OpLook, 0
		case refunds && len(mine) > 0 && r.IntN(2) == 0:
			c.Op.Kind, c.Op.Cost, mine = limiter.OpRefund, mine[0], mine[1:]
			c.Began, c.Ended = at, at // it follows its take
		}
		row, c.State = c.Op.Apply(row, at-r.Int64N(at-c.Began+1))
		if c.Op.Kind == limiter.OpTake && c.State.Took {
			mine = append(mine, c.Op.Cost)
			if refunds {
				c.Ended = at
			}
		}
		c.State.Tick = 1000
		calls = append(calls, c)
	}
	r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	return calls, row
}

func policies(t *testing.T, test func(t *testing.T, r *rand.Rand, p limiter.Policy)) {
	t.Helper()
	t.Parallel()
	for _, p := range []limiter.Policy{bucket, window} {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("%T, seed %d", p, seed), func(t *testing.T) { test(t, rand.New(rand.NewPCG(seed, 0)), p) })
	}
}

func TestCheckFindsTheOrderOfCallsAtTheSameTime(t *testing.T) {
	policies(t, func(t *testing.T, r *rand.Rand, p limiter.Policy) {
		for range 50 {
			if calls, left := concurrent(r, p, limiter.Row{}, 200, false); witness.Check(calls, left) != nil {
				t.Fatal(witness.Check(calls, left))
			}
		}
		if err := witness.Check(nil, limiter.Row{}); err != nil {
			t.Errorf("of no calls: %v", err)
		}
	})
}

// anyOf returns the number of a call that is as wanted.
func anyOf(r *rand.Rand, calls []witness.Call, wanted func(c witness.Call) bool) int {
	for {
		if i := r.IntN(len(calls)); wanted(calls[i]) {
			return i
		}
	}
}

func granted(c witness.Call) bool { return c.Op.Kind == limiter.OpTake && c.State.Took }
func refused(c witness.Call) bool { return c.Op.Kind == limiter.OpTake && !c.State.Took }
func looked(c witness.Call) bool  { return c.Op.Kind == limiter.OpLook }

// more makes row one in which so much more is taken.
func more(row *limiter.Row, n int64) {
	if row.FullAt > 0 {
		row.FullAt += n * row.Period
	} else {
		row.Used += n
	}
}

// follows reports whether one grant added to what another had left.
func follows(c, next witness.Call) bool {
	a, b := c.State.Row, next.State.Row
	if b.FullAt > 0 {
		return granted(next) && b.FullAt == a.FullAt+next.Op.Cost*b.Period
	}
	return granted(next) && a.Start == b.Start && b.Used == a.Used+next.Op.Cost
}

func TestCheckSeesWhatIsWrong(t *testing.T) {
	cases := []struct {
		name  string
		wrong func(r *rand.Rand, calls []witness.Call, left *limiter.Row) []witness.Call
		want  string // in the error
	}{
		{"a grant that nobody was told of", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			i := anyOf(r, calls, func(c witness.Call) bool {
				return granted(c) && slices.ContainsFunc(calls, func(next witness.Call) bool { return follows(c, next) })
			})
			return slices.Delete(calls, i, i+1)
		}, "replay"},
		{"a grant that two were told of", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			return append(calls, calls[anyOf(r, calls, granted)])
		}, "replay"},
		{"a grant of more than there is", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			i := anyOf(r, calls, func(c witness.Call) bool { return refused(c) && c.State.Row.Period != 0 })
			c := &calls[i]
			c.State.Took = true
			more(&c.State.Row, c.Op.Cost)
			return calls
		}, "replay"},
		{"grants that are lost in the end", func(_ *rand.Rand, calls []witness.Call, left *limiter.Row) []witness.Call {
			*left = limiter.Row{}
			return calls
		}, "leave"},
		{"a grant that was told before the one before it began", func(_ *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			last := slices.MaxFunc(calls, func(a, b witness.Call) int {
				if granted(a) != granted(b) {
					return map[bool]int{true: 1, false: -1}[granted(a)]
				}
				return int(a.State.Row.FullAt - b.State.Row.FullAt + a.State.Row.Start - b.State.Row.Start + a.State.Row.Used - b.State.Row.Used)
			})
			for i := range calls {
				if calls[i] == last {
					calls[i].Began, calls[i].Ended = start-10*ms, start-9*ms
				}
			}
			return calls
		}, "order"},
		{"a refusal where there is room", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			calls[anyOf(r, calls, refused)].State.Now += int64(time.Second)
			return calls
		}, "room"},
		{"a refusal by a state that is past", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			c := &calls[anyOf(r, calls, func(c witness.Call) bool { return refused(c) && c.Began < start+100*ms })]
			c.Began += int64(time.Second)
			c.Ended += int64(time.Second)
			return calls
		}, "none of their states"},
		{"a look at a state that is yet to come", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			i := anyOf(r, calls, func(c witness.Call) bool { return looked(c) && c.Began > start+100*ms })
			calls[i].Began, calls[i].Ended = start-10*ms, start-9*ms
			return calls
		}, "none of their states"},
		{"a refusal by a state that never was", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			calls[anyOf(r, calls, refused)].State.Row.At++
			return calls
		}, "none of their states"},
	}
	policies(t, func(t *testing.T, r *rand.Rand, p limiter.Policy) {
		for _, c := range cases {
			for range 10 {
				calls, left := concurrent(r, p, limiter.Row{}, 300, false)
				calls = c.wrong(r, calls, &left)
				if err := witness.Check(calls, left); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%s: %v, want %q in it", c.name, err, c.want)
				}
			}
		}
	})
}

// The bound is checked without Op.Apply: also grants that follow from one another must
// keep it.
func TestCheckKnowsTheBoundOfThePolicy(t *testing.T) {
	policies(t, func(t *testing.T, _ *rand.Rand, p limiter.Policy) {
		var calls []witness.Call
		for i := range int64(11) {
			op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: 1}
			row := limiter.Row{FullAt: start + (i+1)*ms, At: start, Period: ms, Limit: 10}
			if _, ok := p.(limiter.FixedWindow); ok {
				row = limiter.Row{Start: start, Used: i + 1, At: start, Period: 20 * ms, Limit: 10}
			}
			calls = append(calls, witness.Call{Op: op, State: limiter.State{Row: row, Now: start, Took: true}})
		}
		if err := witness.Check(calls[:10], calls[9].State.Row); err != nil {
			t.Errorf("10 of 10: %v", err)
		}
		if err := witness.Check(calls, calls[10].State.Row); err == nil || !strings.Contains(err.Error(), "bound") {
			t.Errorf("11 of 10: %v", err)
		}
	})
}
