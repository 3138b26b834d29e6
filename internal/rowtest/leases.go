package rowtest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
)

// inFlights are policies of leases. A hold changes nothing in a row, so it differs with each operation.
var inFlights = []limiter.Policy{
	limiter.InFlight{Limit: 1, Hold: time.Minute},
	limiter.InFlight{Limit: 3, Hold: time.Minute},
}

// ends are the times after the clock at which leases of [useLeases] end.
var ends = []int64{
	-3600 * second, -second, -1, 0, 1, second - 1, second, second + 1, 60 * second,
	int64(limiter.MaxHold), int64(limiter.MaxHold + limiter.ClockTolerance), int64(limiter.MaxHold+limiter.ClockTolerance) + 1, 100 * 24 * 3600 * second,
}

// useLeases sets the leases of a row, with ids from 1 on in any order. They end around every bound.
func useLeases(r *rand.Rand, row *limiter.Row, now int64) {
	held := make([]int64, r.IntN(7))
	ids := r.Perm(len(held))
	numbers := make([]int64, 0, 2*len(held))
	for i := range held {
		held[i] = now + pick(r, ends...)
	}
	slices.Sort(held)
	numbers = append(numbers, held...)
	for _, id := range ids {
		numbers = append(numbers, int64(id+1))
	}
	row.List = rowlist.Of(numbers...)
}

// leaseOp makes op an operation on a lease.
func leaseOp(r *rand.Rand, op *limiter.Op) {
	op.ID = pick(r, 1, 2, 3, 4, 1<<63-1)
	op.Hold = time.Duration(pick(r, int64(time.Millisecond), second, second-1, 60*second, int64(limiter.MaxHold)))
}
