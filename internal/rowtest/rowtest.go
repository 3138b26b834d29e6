// Package rowtest compares what a SQL store does to its rows with what [limiter.Op.Apply] returns,
// for any row that can exist. The tests of packages postgres and sqlite call it, with a way to
// write and read a row.
package rowtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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

// Run tests that the store returns the state that Op.Apply returns and leaves the same row, whatever
// row it finds. The rows lie around every bound: of the policy, the clock, its tolerance and the
// window. The store is empty. count is the number of operations for each policy.
func Run(t *testing.T, store limiter.Store, rows Rows, count int) {
	for n, p := range slices.Concat(policies, inFlights) {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for i := range count {
				op := limiter.Op{Name: fmt.Sprint("l", n), Key: fmt.Sprint(i), Policy: p, At: anyTime(r, p)}
				own := r.IntN(4) == 0 // the store decides by its own clock
				if own {
					op.At = time.Now().UnixNano()
				}
				row := anyRow(r, p, op.At)
				if row.Limit != 0 {
					rows.Insert(t, op, row)
				}
				if !anyOp(r, &op, row) {
					continue
				}
				wantRow, want := op.Apply(row, op.At)
				if own = own && reported(op, limiter.State{Now: 1}).Now == 1; own {
					op.At = 0
				}
				before := secondLooks(store)
				got, err := store.Do(t.Context(), op)
				if err != nil {
					t.Fatalf("seed %d: %+v on %+v: %v", seed, op, row, err)
				}
				if own {
					if d := time.Since(time.Unix(0, got.Now)).Abs(); d > time.Minute {
						t.Fatalf("the clock of the store differs by %v from this one: set both", d)
					}
					wantRow, want = op.Apply(row, got.Now)
				}
				if got, want = reported(op, got), reported(op, want); got != want {
					t.Fatalf("seed %d: %+v on\n     %+v\n got %+v\nwant %+v", seed, op, row, got, want)
				}
				if !own && want.Took && op.Kind == takeOf(p) && plain(rows, &op, row, wantRow) && secondLooks(store) != before {
					t.Fatalf("seed %d: %+v on\n     %+v\nwas not granted by its statement", seed, op, row)
				}
				if gotRow := rows.Read(t, op); gotRow != wantRow {
					t.Fatalf("seed %d: %+v on\n     %+v\nleft %+v\nwant %+v", seed, op, row, gotRow, wantRow)
				}
			}
		})
	}
}

// anyOp makes op any operation that exists for its policy on a row. It reports false if there is none.
func anyOp(r *rand.Rand, op *limiter.Op, row limiter.Row) bool {
	op.Kind = limiter.OpKind(pick(r, int64(takeOf(op.Policy)), int64(anyKind(r, op.Policy))))
	op.Cost = pick(r, 1, 1, 2, 3)
	leaseOp(r, op)
	switch op.Kind {
	case limiter.OpTake:
		op.MaxWait = time.Duration(pick(r, 0, 0, 1, second, second-1, 3600*second))
	case limiter.OpTakeUpTo, limiter.OpCharge:
		op.Cost = min(maxCharge(op.Policy), pick(r, 1, 2, 3, 4, 5, 200_000, 1<<60, math.MaxInt64))
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
		return row.At != 0 // otherwise nothing was booked since the reset
	}
	return true
}

// plain reports whether the statement of a take must decide it alone: the row has the take's policy or is
// missing, is not ahead of the clock, and its count is far from the highest. A sliding window may have no
// sums, because it was reset, and a take may not wait. The rows of some stores say that a statement decides
// takes from the window of the clock only. PostgreSQL does that for calendars, and only if the take may not
// wait beyond it.
func plain(rows Rows, op *limiter.Op, row, taken limiter.Row) bool {
	_, thisWindow := rows.(interface{ DecidesThisWindow() })
	_, calendar := op.Policy.(limiter.CalendarWindow)
	switch {
	case calendar && !thisWindow && waitsBeyond(op):
		return false
	case row == limiter.Row{}:
		return true
	case limiter.KindOf(op.Policy) == limiter.KindSliding && (op.MaxWait > 0 || summed(row)):
		return false
	case row.Used >= 1<<61 || row.At > op.At+op.Tolerance(row):
		return false
	case limiter.KindOf(op.Policy) == limiter.KindInFlight:
		return true
	case calendar || thisWindow && limiter.KindOf(op.Policy) == limiter.KindWindow:
		return current(op, row, taken)
	}
	same := row.Period == taken.Period && row.Limit == taken.Limit
	return same && (limiter.KindOf(op.Policy) != limiter.KindWindow || row.Start%row.Period == 0)
}

// secondLooks is how many operations the statements of a store did not decide.
func secondLooks(store limiter.Store) int64 {
	if s, ok := store.(interface{ Stats() limiter.StoreStats }); ok {
		return s.Stats().SecondLooks
	}
	return 0
}

// anyKind returns a kind of operation that exists for p.
func anyKind(r *rand.Rand, p limiter.Policy) limiter.OpKind {
	for {
		kind := limiter.OpKind(1 + r.IntN(int(limiter.OpExtend)))
		exists := (&limiter.Op{Kind: kind, Policy: p}).Check() == nil
		if exists && (kind != limiter.OpTakeUpTo || !countsRefusals(p)) {
			return kind
		}
	}
}

// takeOf returns the kind of operation that takes from p.
func takeOf(p limiter.Policy) limiter.OpKind {
	if limiter.KindOf(p) == limiter.KindInFlight {
		return limiter.OpAcquire
	}
	return limiter.OpTake
}

func pick(r *rand.Rand, of ...int64) int64 { return of[r.IntN(len(of))] }

// anyRow returns a row such as any sequence of operations may leave, or none.
func anyRow(r *rand.Rand, p limiter.Policy, now int64) limiter.Row {
	if r.IntN(20) == 0 {
		return limiter.Row{}
	}
	if before := others[limiter.KindOf(p)]; r.IntN(2) == 0 {
		p = before[r.IntN(len(before))]
	}
	n := TableOf(p).Numbers(&limiter.Op{Policy: p}, now)
	row := limiter.Row{Limit: n.Limit + pick(r, 0, 0, 0, 1), Period: n.Period}
	row.At = now + pick(r, -1, 0, 1)*pick(r, 0, 1, second, 2*second, 2*second+1, 3*second, row.Period, row.Period+1, row.Period-1, 17*row.Period, 18*row.Period)
	if use(r, p, &row, now); r.IntN(10) == 0 { // it was reset
		row = limiter.Row{Limit: row.Limit, Period: row.Period}
	}
	return row
}

func countsRefusals(p limiter.Policy) bool { return (&limiter.Op{Policy: p}).CountsRefusals() }

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
