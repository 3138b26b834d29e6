package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// streamed is the answer of a statement whose last row comes before an error.
type streamed struct {
	pgx.Rows
	rows [][]any
	err  error
}

func (r *streamed) Next() bool { r.rows = r.rows[1:]; return len(r.rows) > 0 }
func (r *streamed) Err() error { return r.err }
func (*streamed) Close()       {}

func (r *streamed) Scan(to ...any) error {
	for i, v := range r.rows[0] {
		switch to := to[i].(type) {
		case *int64:
			*to = v.(int64)
		case *string:
			*to = v.(string)
		}
	}
	return nil
}

// answers is a DB that answers each query with rows.
type answers struct {
	DB
	*streamed
}

func (a answers) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.streamed, nil }

func TestMergedAnswers(t *testing.T) {
	t.Parallel()
	const now int64 = 1_800_000_000_000_000_000
	grant := func(number int64, name, key string) []any { return []any{number, name, key, int64(1), now, now, now} }
	late := errors.New("after the last row")
	for _, c := range []struct {
		name string
		rows [][]any
		late error
		err  error
		took []bool // nil: no answers
	}{
		{"an added row comes with its key", [][]any{grant(0, "n", "6231"), grant(0, "n", "6230")}, nil, nil, []bool{true, true}},
		{"rows before a late error count for nothing", [][]any{grant(1, "", ""), grant(2, "", "")}, late, late, nil},
		{"a row of another key is an error", [][]any{grant(1, "", ""), grant(0, "n", "7a")}, nil, limiter.ErrOutcomeUnknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var groups []*batch.Group
			for i := range 2 {
				groups = append(groups, &batch.Group{Calls: []*batch.Call{batch.NewCall(limiter.Op{
					Kind: limiter.OpTake, Name: "n", Key: fmt.Sprint("b", i), Policy: limiter.PerHour(3), Cost: 1,
				})}})
			}
			table := &table{Table: tables.All[0], kind: kinds[limiter.KindBucket], sql: tableStatements{takes: "takes"}}
			db := answers{streamed: &streamed{rows: append([][]any{nil}, c.rows...), err: c.late}}
			done, err := new(Store).takeMerged(t.Context(), db, table, groups)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || done != (len(c.took) == len(groups)) {
				t.Errorf("done %t, %v; want %d decided and %v", done, err, len(c.took), c.err)
			}
			var took []bool
			for _, g := range groups {
				if c := g.Calls[0]; c.Decided() {
					took = append(took, c.State().Took)
				}
			}
			if !slices.Equal(took, c.took) {
				t.Errorf("answers %v, want %v", took, c.took)
			}
		})
	}
}
