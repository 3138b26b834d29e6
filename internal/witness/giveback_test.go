package witness_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/witness"
)

// given returns a history with refunds, of a key to which nothing comes back by time.
func given(r *rand.Rand, p limiter.Policy) (calls []witness.Call, opened, left limiter.Row) {
	if _, ok := p.(limiter.FixedWindow); ok {
		p = limiter.FixedWindow{Limit: 10, Window: 262_980 * time.Hour}
	} else {
		p = limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Hour}
	}
	opened, _ = limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: 1}.Apply(limiter.Row{}, start-int64(time.Second))
	calls, left = concurrent(r, p, opened, 300, true)
	return calls, opened, left
}

func TestCheckGivenBackCountsWhatIsTakenAndGivenBack(t *testing.T) {
	policies(t, func(t *testing.T, r *rand.Rand, p limiter.Policy) {
		for range 50 {
			if calls, opened, left := given(r, p); witness.CheckGivenBack(calls, opened, left) != nil {
				t.Fatal(witness.CheckGivenBack(calls, opened, left))
			}
		}
	})
}

func TestCheckGivenBackSeesWhatIsWrong(t *testing.T) {
	refund := func(c witness.Call) bool { return c.Op.Kind == limiter.OpRefund }
	cases := []struct {
		name  string
		wrong func(r *rand.Rand, calls []witness.Call, left *limiter.Row) []witness.Call
		want  string
	}{
		{"a grant that two were told of", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			return append(calls, calls[anyOf(r, calls, granted)])
		}, "sum"},
		{"a refund that did nothing", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			calls[anyOf(r, calls, refund)].State.Took = false
			return calls
		}, "refund"},
		{"a refund that is lost", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			calls[anyOf(r, calls, refund)].Op.Cost++
			return calls
		}, "sum"},
		{"a grant that is lost in the end", func(_ *rand.Rand, calls []witness.Call, left *limiter.Row) []witness.Call {
			more(left, -1)
			return calls
		}, "sum"},
		{"a grant of more than there is", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			c := &calls[anyOf(r, calls, granted)]
			more(&c.State.Row, 10)
			return calls
		}, "bound"},
		{"a refusal where there is room", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			c := &calls[anyOf(r, calls, refused)]
			more(&c.State.Row, -c.Op.Cost)
			return calls
		}, "answer"},
		{"a look at what never was", func(r *rand.Rand, calls []witness.Call, _ *limiter.Row) []witness.Call {
			c := &calls[anyOf(r, calls, looked)]
			more(&c.State.Row, 100)
			return calls
		}, "answer"},
	}
	policies(t, func(t *testing.T, r *rand.Rand, p limiter.Policy) {
		for _, c := range cases {
			for range 10 {
				calls, opened, left := given(r, p)
				calls = c.wrong(r, calls, &left)
				if err := witness.CheckGivenBack(calls, opened, left); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%s: %v, want %q in it", c.name, err, c.want)
				}
			}
		}
	})
}
