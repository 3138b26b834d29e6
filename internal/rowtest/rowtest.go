// Package rowtest compares what a SQL store does to its rows with what [limiter.Op.Apply] returns,
// for any row that can exist. The tests of packages postgres and sqlite call it, with a way to
// write and read a row.
package rowtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// Rows writes and reads the row of an operation's limiter and key, in the table of its policy.
type Rows interface {
	Insert(t *testing.T, op limiter.Op, row limiter.Row)
	// Read returns the zero Row if there is none.
	Read(t *testing.T, op limiter.Op) limiter.Row
}

const second = int64(time.Second)

// start is a whole day, so that windows begin with it.
const start = 86_400 * 20_000 * second

// policies are such that some have the period of others, or the limit. The last two count refusals.
var policies = []limiter.Policy{
	limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: time.Second},
	limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: time.Hour},
	limiter.TokenBucket{Capacity: 4, Refill: 1, Interval: time.Hour},
	limiter.FixedWindow{Limit: 3, Window: time.Second},
	limiter.FixedWindow{Limit: 3, Window: time.Hour},
	limiter.FixedWindow{Limit: 4, Window: time.Hour},
	limiter.FixedWindow{Limit: 3, Window: time.Second, CountRejected: true},
	limiter.FixedWindow{Limit: 3, Window: time.Hour, CountRejected: true},
}

// Run tests that the store answers an operation as Op.Apply says and leaves the same row, whatever
// row it finds. The rows lie around every bound: of the policy, the clock, its tolerance and the
// window. The store is empty. count is the number of operations for each policy.
func Run(t *testing.T, store limiter.Store, rows Rows, count int) {
	for n, p := range policies {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for i := range count {
				op := limiter.Op{Name: fmt.Sprint("l", n), Key: fmt.Sprint(i), Policy: p, At: start + r.Int64N(second)*r.Int64N(2)}
				row := anyRow(r, p, op.At)
				if row.Period != 0 {
					rows.Insert(t, op, row)
				}
				op.Kind = anyKind(r, p)
				op.Cost = pick(r, 1, 1, 2, 3)
				switch op.Kind {
				case limiter.OpTake:
					op.MaxWait = time.Duration(pick(r, 0, 0, 1, second, second-1, 3600*second))
				case limiter.OpTakeUpTo, limiter.OpCharge:
					op.Cost = pick(r, 1, 2, 3, 4, 5, 200_000, 1<<60)
					if bucket, ok := p.(limiter.TokenBucket); ok {
						op.Cost = min(op.Cost, int64(30*365*24*time.Hour/bucket.Step()))
					}
				case limiter.OpBlock:
					op.Cost = pick(r, 1, second, 3600*second, 7200*second-1, int64(limiter.MaxBlock))
				case limiter.OpRefund:
					op.Cost = pick(r, 1, 2, 5, 1<<62)
					if r.IntN(2) == 0 {
						op.Booked.Row.Start = row.Start - pick(r, 0, 0, 0, row.Period)
						op.Booked.Row.Period = pick(r, row.Period, row.Period, second, 3600*second)
					}
				case limiter.OpCancel:
					op.MaxWait = time.Duration(pick(r, 0, second, 3600*second))
					op.Booked.Row = row
					op.Booked.Row.FullAt -= pick(r, 0, 0, 0, 1)
					op.Booked.Row.Start -= pick(r, 0, 0, 0, row.Period)
					op.Booked.Now = op.At - pick(r, 0, 1, second, row.Period)
					if row.FullAt < 3*3600*second { // nothing was booked since the reset
						continue
					}
				}
				wantRow, want := op.Apply(row, op.At)
				got, err := store.Do(t.Context(), op)
				if err != nil {
					t.Fatalf("seed %d: %+v on %+v: %v", seed, op, row, err)
				}
				if got, want = reported(op, got), reported(op, want); got != want {
					t.Fatalf("seed %d: %+v on\n     %+v\n got %+v\nwant %+v", seed, op, row, got, want)
				}
				if gotRow := rows.Read(t, op); gotRow != wantRow {
					t.Fatalf("seed %d: %+v on\n     %+v\nleft %+v\nwant %+v", seed, op, row, gotRow, wantRow)
				}
			}
		})
	}
}

// anyKind returns a kind of operation that exists for p.
func anyKind(r *rand.Rand, p limiter.Policy) limiter.OpKind {
	for {
		kind := limiter.OpKind(1 + r.IntN(int(limiter.OpBlock)))
		if w, ok := p.(limiter.FixedWindow); !ok || !w.CountRejected || kind != limiter.OpTakeUpTo {
			return kind
		}
	}
}

func pick(r *rand.Rand, of ...int64) int64 { return of[r.IntN(len(of))] }

// anyRow returns a row such as any sequence of operations may leave, or none.
func anyRow(r *rand.Rand, p limiter.Policy, now int64) limiter.Row {
	if r.IntN(20) == 0 {
		return limiter.Row{}
	}
	row := limiter.Row{Limit: pick(r, 3, 3, 4), Period: pick(r, second, 3600*second)}
	row.At = now + pick(r, -1, 0, 1)*pick(r, 0, 1, second, 2*second, 2*second+1, row.Period, row.Period+1, row.Period-1)
	reset := r.IntN(10) == 0
	if _, ok := p.(limiter.TokenBucket); ok {
		row.FullAt = row.At + pick(r, 0, 1, 2, 3, 4, 5, 250_000)*row.Period + pick(r, -1, 0, 0, 1)
		if reset {
			row.FullAt, row.At = 0, 0
		}
		return row
	}
	row.Start = row.At - row.At%row.Period + pick(r, 0, 0, 0, 1, 2)*row.Period
	row.Used = pick(r, 0, 1, 2, row.Limit, row.Limit, row.Limit+5, 1<<62, 1<<62-1)
	if reset {
		row.Start, row.Used, row.At = 0, 0, 0
	}
	return row
}
