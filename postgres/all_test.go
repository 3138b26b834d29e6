package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

var _ limiter.AllStore = (*postgres.Store)(nil)

// four are takes from four rows, two of each table.
func four(cost int64) []limiter.Op {
	return []limiter.Op{take(slow(5), "a", cost), take(slow(5), "b", cost), take(long(5), "a", cost), take(long(5), "b", cost)}
}

// oneOfAll is a Store that carries out an operation as a decision over several limits.
type oneOfAll struct{ limiter.AllStore }

func (s oneOfAll) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	states, err := s.DoAll(ctx, []limiter.Op{op})
	return append(states, limiter.State{})[0], err
}

func TestAllStatements(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		r := newTracer(false)
		store := d.store(t, schema, r.in)
		do(t, d.store(t, schema, few(1)), take(long(5), "a", 1)) // the other rows are missing
		for _, step := range []struct {
			name string
			ops  []limiter.Op
			took bool
			want int // statements
		}{
			{"two if rows are missing", four(2), true, 2},
			{"one if all rows exist", four(2), true, 1},
			{"one for a refusal", four(1), false, 1},
			{"one to use up a row", []limiter.Op{take(slow(5), "b", 1)}, true, 1},
			{"one for a refusal beside missing rows", slices.Concat(four(1)[:2], []limiter.Op{take(long(5), "c", 1), take(long(5), "d", 1)}), false, 1},
		} {
			if states, took := doAll(t, store, step.ops...); took != step.took {
				t.Errorf("%s: %+v, want all taken: %t", step.name, states, step.took)
			}
			if sent := r.take(); len(sent) != step.want {
				t.Errorf("%s: sent %v, want %d statements", step.name, sent, step.want)
			}
		}
		if n := query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.limiter_fixed_windows WHERE key IN ('c', 'd')", schema)); n != 0 {
			t.Errorf("a refusal added %d rows", n)
		}
	})
}
