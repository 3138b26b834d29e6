package rowtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// Changing is rows that another session changes.
type Changing interface {
	Rows
	// While replaces a row in a transaction of another session, or deletes it if row is the zero Row.
	// Meanwhile it calls do. It commits as soon as do waits for the row or has returned, and reports whether
	// do waited.
	While(t *testing.T, op limiter.Op, row limiter.Row, do func()) (waited bool)
}

// RunChanged tests operations on rows that change between the snapshot of a statement and its lock. An
// operation that waits for the row must do what Op.Apply does with the changed row. An operation that does
// not wait must return what Op.Apply returns for the old row, and write nothing. The store is empty. The
// count is the number of operations for each policy.
func RunChanged(t *testing.T, store limiter.Store, rows Changing, count int) {
	for n, p := range slices.Concat(policies, inFlights) {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for i := range count {
				op := limiter.Op{Name: fmt.Sprint("l", n), Key: fmt.Sprint(i), Policy: p, At: anyTime(r, p)}
				was, row := anyRow(r, p, op.At), anyRow(r, p, op.At)
				if r.IntN(3) > 0 { // then most operations see room, and wait
					take := limiter.Op{Kind: takeOf(p), Policy: p, Cost: 1, ID: 1, Hold: time.Second}
					was, _ = take.Apply(limiter.Row{}, op.At-pick(r, 0, 1, second))
				}
				if !anyOp(r, &op, row) || was == row {
					continue
				}
				if op.Kind == limiter.OpTake && !countsRefusals(p) && r.IntN(2) == 0 { // by the statement for many keys
					op.Kind, op.MaxWait = limiter.OpTakeUpTo, 0
				}
				if was.Limit != 0 {
					rows.Insert(t, op, was)
				}
				var got limiter.State
				var err error
				waited := rows.While(t, op, row, func() { got, err = store.Do(t.Context(), op) })
				waited = waited && op.Kind != limiter.OpLook // one that lost the race to convert the row has its answer
				found, left := was, row
				if waited {
					found = row
				}
				after, want := op.Apply(found, op.At)
				if waited {
					left = after
				}
				if err != nil {
					t.Fatalf("seed %d: %+v on %+v: %v", seed, op, found, err)
				}
				if got, want = reported(op, got), reported(op, want); got != want {
					t.Fatalf("seed %d: %+v on\n     %+v\nthat became\n     %+v, waited %t\n got %+v\nwant %+v", seed, op, was, row, waited, got, want)
				}
				if read := rows.Read(t, op); read != left {
					t.Fatalf("seed %d: %+v on\n     %+v\nthat became\n     %+v, waited %t\nleft %+v\nwant %+v", seed, op, was, row, waited, read, left)
				}
			}
		})
	}
}
