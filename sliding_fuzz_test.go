package limiter_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
)

// FuzzApplySliding checks that no row of a sliding window makes an operation panic. If a policy left the row,
// the operation leaves a row that can be stored, and a block refuses.
func FuzzApplySliding(f *testing.F) {
	now := int64(1_800_000_000) * int64(time.Second)
	for kind := range uint8(8) {
		f.Add(false, int64(5), int64(time.Hour), kind, int64(1), int64(0), now, true, int64(0), int64(3), int64(1), now, int64(time.Minute), int64(5))
		f.Add(false, int64(5), int64(time.Hour), kind, int64(1)<<61, int64(time.Hour), now, false, int64(time.Hour), int64(1)<<60, int64(2), now+int64(time.Hour), int64(24*time.Hour), int64(5))
		f.Add(true, int64(1)<<60, int64(thirtyYears), kind, int64(1), int64(0), endOfTime, true, int64(maxStored-1), int64(maxStored), int64(-maxStored), int64(maxStored-1), int64(maxStored), int64(1))
		f.Add(true, int64(5), int64(16*time.Millisecond), kind, int64(1), int64(0), int64(1), false, int64(maxStored-1), int64(-1), int64(1), int64(maxStored-1), int64(maxStored), int64(1))
	}
	f.Fuzz(func(t *testing.T, hostile bool, limit, span int64, kind uint8, cost, wait, now int64, own bool, ahead, sum, more, at, period, wrote int64) {
		p := limiter.SlidingWindow{Limit: fold(limit, 1, 1<<60), Window: time.Duration(fold(span, int64(16*time.Millisecond), int64(thirtyYears)))}
		now = fold(now, 1, endOfTime)
		row := limiter.Row{At: fold(at, 0, maxStored-1), Period: fold(period, 1, maxStored), Limit: fold(wrote, 1, maxStored), Start: fold(ahead, 0, maxStored-1)}
		var sums [18]int64
		if !hostile {
			row.Period, row.Limit = fold(period, int64(time.Millisecond), int64(thirtyYears)/16), fold(wrote, 1, 1<<60)
			row.At = fold(at, 0, endOfTime)
			row.Start = row.At + fold(ahead, 0, int64(limiter.MaxBlock))
			row.Start -= row.Start % row.Period
			sum, more = fold(sum, 0, 1<<60), fold(more, 0, 1<<55)
		}
		for i := range sums {
			sums[i] = sum + int64(i)*more
		}
		if row.At > 0 {
			row.List = rowlist.Of(sums[:]...)
		} else {
			row.Start = 0
		}
		op := fuzzedOp(p, kind, cost, wait, now, own, row)
		next, s := op.Apply(row, now)
		if hostile {
			return
		}
		counts := rowlist.Numbers(next.List)
		for i := range counts {
			if counts[i] < 0 || counts[i] > 1<<62 || i > 0 && counts[i] < counts[i-1] {
				t.Fatalf("%+v at %d on %+v leaves the sums %v", op, now, row, counts)
			}
		}
		if !storable(next) || len(next.List) != 0 && len(counts) != 18 {
			t.Fatalf("%+v at %d on %+v leaves %+v, which cannot be stored", op, now, row, next)
		}
		if row.At > now+op.Tolerance(next) {
			return // by the shorter window, the row may be of a clock that was set back
		}
		switch again, told := op.Apply(next, now); {
		case op.Kind == limiter.OpBlock && (one(op, 1, next, now) || one(op, 1, next, now+op.Cost)):
			t.Fatalf("%+v at %d on %+v: a blocked key passes", op, now, row)
		case op.Kind == limiter.OpTake && !s.Took && (told.Took || again != next):
			t.Fatalf("%+v at %d on %+v: a refusal writes anew each time, or passes a moment later", op, now, row)
		case op.Kind == limiter.OpLook && (again != next || next != row && next != s.Row):
			t.Fatalf("%+v at %d on %+v: a look writes anew each time, or something else than it tells", op, now, row)
		case (op.Kind == limiter.OpRefund || op.Kind == limiter.OpCancel) && (next.Start != row.Start || next.List > row.List):
			t.Fatalf("%+v at %d on %+v: what was given back was taken", op, now, row)
		}
	})
}
