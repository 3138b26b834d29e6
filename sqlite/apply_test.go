package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

const second = int64(time.Second)

// Whatever row an operation finds, it answers and leaves what Op.Apply says. The rows lie around
// every bound there is: of the policy, the clock, its tolerance and the window.
func TestOperationsOnAnyRow(t *testing.T) {
	t.Parallel()
	policies := []limiter.Policy{
		limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: time.Second},
		limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: time.Hour},
		limiter.TokenBucket{Capacity: 4, Refill: 1, Interval: time.Hour},
		limiter.FixedWindow{Limit: 3, Window: time.Second},
		limiter.FixedWindow{Limit: 3, Window: time.Hour},
		limiter.FixedWindow{Limit: 4, Window: time.Hour},
		limiter.FixedWindow{Limit: 3, Window: time.Second, CountRejected: true},
		limiter.FixedWindow{Limit: 3, Window: time.Hour, CountRejected: true},
	}
	for _, p := range policies {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			store := openPath(t, ":memory:")
			for i := range 600 {
				op := limiter.Op{Name: "l", Key: fmt.Sprint(i), Policy: p, At: t0.UnixNano() + r.Int64N(second)*r.Int64N(2)}
				row := anyRow(r, p, op.At)
				if row.Period != 0 {
					insert(t, store, op, row)
				}
				op.Kind = limiter.OpKind(1 + r.IntN(5))
				op.Cost = pick(r, 1, 1, 2, 3)
				switch op.Kind {
				case limiter.OpTake:
					op.MaxWait = time.Duration(pick(r, 0, 0, 1, second, second-1, 3600*second))
				case limiter.OpRefund:
					op.Cost = pick(r, 1, 2, 5, 1<<62)
				case limiter.OpCancel:
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
				got.Tick, want.Tick = 0, 0
				if op.Kind > limiter.OpLook { // of which only Took is told
					want = limiter.State{Took: want.Took}
				}
				if got != want {
					t.Fatalf("seed %d: %+v on\n     %+v\n got %+v\nwant %+v", seed, op, row, got, want)
				}
				if gotRow := read(t, store, op); gotRow != wantRow {
					t.Fatalf("seed %d: %+v on\n     %+v\nleft %+v\nwant %+v", seed, op, row, gotRow, wantRow)
				}
			}
			checkTypes(t, store)
		})
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
		row.FullAt = row.At + pick(r, 0, 1, 2, 3, 4)*row.Period + pick(r, -1, 0, 0, 1)
		if reset {
			row.FullAt, row.At = 0, 0
		}
		return row
	}
	row.Start = row.At - row.At%row.Period + pick(r, 0, 0, 0, 1, 2)*row.Period
	row.Used = pick(r, 0, 1, 2, row.Limit)
	if w := p.(limiter.FixedWindow); w.CountRejected {
		row.Used = pick(r, row.Used, row.Limit+5, 1<<62, 1<<62-1)
	}
	if reset {
		row.Start, row.Used, row.At = 0, 0, 0
	}
	return row
}

func insert(t *testing.T, store *sqlite.Store, op limiter.Op, row limiter.Row) {
	t.Helper()
	query := `INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted) VALUES (?, ?, ?, ?, ?, ?, 1)`
	args := []any{op.Name, []byte(op.Key), row.FullAt, row.At, row.Period, row.Limit}
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		query = `INSERT INTO limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted) VALUES (?, ?, ?, ?, ?, ?, ?, 1)`
		args = []any{op.Name, []byte(op.Key), row.Start, row.Used, row.At, row.Period, row.Limit}
	}
	if _, err := store.DB().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, store *sqlite.Store, op limiter.Op) (row limiter.Row) {
	t.Helper()
	query := `SELECT full_at, 0, 0, at, step, capacity FROM limiter_token_buckets WHERE limiter = ? AND key = ?`
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		query = `SELECT 0, window_start, used, at, win, lim FROM limiter_fixed_windows WHERE limiter = ? AND key = ?`
	}
	rows, err := store.DB().QueryContext(t.Context(), query, op.Name, []byte(op.Key))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&row.FullAt, &row.Start, &row.Used, &row.At, &row.Period, &row.Limit); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return row
}

// A swap compares everything that a decision was made on.
func TestSwapComparesEveryColumn(t *testing.T) {
	t.Parallel()
	store := openPath(t, ":memory:")
	bucket := limiter.Row{FullAt: 10, At: 20, Period: 30, Limit: 40}
	window := limiter.Row{Start: 10, Used: 20, At: 30, Period: 40, Limit: 50}
	for _, c := range []struct {
		policy limiter.Policy
		row    limiter.Row
		others []limiter.Row
	}{
		{limiter.PerSecond(1), bucket, []limiter.Row{
			{}, {FullAt: 11, At: 20, Period: 30, Limit: 40}, {FullAt: 10, At: 21, Period: 30, Limit: 40},
			{FullAt: 10, At: 20, Period: 31, Limit: 40}, {FullAt: 10, At: 20, Period: 30, Limit: 41},
		}},
		{limiter.FixedWindow{Limit: 1, Window: time.Second}, window, []limiter.Row{
			{}, {Start: 11, Used: 20, At: 30, Period: 40, Limit: 50}, {Start: 10, Used: 21, At: 30, Period: 40, Limit: 50},
			{Start: 10, Used: 20, At: 31, Period: 40, Limit: 50}, {Start: 10, Used: 20, At: 30, Period: 41, Limit: 50},
			{Start: 10, Used: 20, At: 30, Period: 40, Limit: 51},
		}},
	} {
		op := limiter.Op{Kind: limiter.OpTake, Name: "l", Key: "k", Policy: c.policy}
		swap := func(from, to limiter.Row, want bool) {
			t.Helper()
			if got, err := store.Swap(t.Context(), op, from, to); err != nil || got != want {
				t.Errorf("Swap from %+v = %v, %v; want %v", from, got, err, want)
			}
		}
		swap(limiter.Row{}, c.row, true)
		to := c.row
		to.At += 100
		for _, other := range c.others {
			swap(other, to, false)
		}
		if got := read(t, store, op); got != c.row {
			t.Errorf("the row is %+v, want %+v", got, c.row)
		}
		swap(c.row, to, true)
		if got := read(t, store, op); got != to {
			t.Errorf("after the swap the row is %+v, want %+v", got, to)
		}
	}
}
