package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// script is a database that answers what a test says, and records its steps. It uses readings and
// swaps up in order, and fails in one step.
type script struct {
	pgx.Tx
	readings []limiter.Row
	swaps    []bool
	fails    string // the step that fails, as "read 2"

	steps   []string
	swapped []limiter.Row // what the swaps were to leave
}

var errScript = errors.New("broken")

func (s *script) step(name string) error {
	s.steps = append(s.steps, name)
	n := 0
	for _, step := range s.steps {
		if step == name {
			n++
		}
	}
	if want, nth, _ := strings.Cut(s.fails, " "); want == name && (nth == "" || nth == "1" && n == 1 || nth == "2" && n == 2) {
		return errScript
	}
	return nil
}

// scripted is the table of a script. Each statement is the name of its step.
func scripted() *table {
	return &table{
		Table: tables.All[0], kind: kinds[limiter.KindBucket],
		sql: tableStatements{take: "take", read: "read", insert: "swap", swap: "swap", lock: "lock"},
	}
}

// QueryRow is a take, which the statement does not decide, or a read.
func (s *script) QueryRow(_ context.Context, sql string, _ ...any) pgx.Row {
	if err := s.step(sql); err != nil {
		return scriptRow{err: err}
	}
	if sql == "take" {
		return scriptRow{err: pgx.ErrNoRows}
	}
	r := s.readings[0]
	s.readings = s.readings[1:]
	return scriptRow{values: []int64{settleTime, r.FullAt, r.At, r.Period, r.Limit}}
}

type scriptRow struct {
	values []int64
	err    error
}

func (r scriptRow) Scan(to ...any) error {
	for i, v := range r.values {
		*to[i].(*int64) = v
	}
	return r.err
}

// Exec is a lock or a swap.
func (s *script) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	err := s.step(sql)
	if sql == "lock" {
		return pgconn.CommandTag{}, err
	}
	n := func(i int) int64 { return *args[i].(*int64) }
	s.swapped = append(s.swapped, limiter.Row{FullAt: n(2), At: n(3), Period: n(4), Limit: n(5)})
	won := s.swaps[0]
	s.swaps = s.swaps[1:]
	if won {
		return pgconn.NewCommandTag("UPDATE 1"), err
	}
	return pgconn.NewCommandTag("UPDATE 0"), err
}

func (s *script) Begin(context.Context) (pgx.Tx, error) {
	err := s.step("begin")
	return s, err
}

func (s *script) Commit(context.Context) error { return s.step("commit") }
func (s *script) Conn() *pgx.Conn              { return nil }

// Rollback fails, as it does after a lost commit. Nobody must see that.
func (s *script) Rollback(context.Context) error {
	return errors.Join(s.step("rollback"), errors.New("conn closed"))
}

const settleTime int64 = 1_800_000_000_000_000_000

var (
	settlePolicy = limiter.PerHour(3)
	settleStep   = int64(settlePolicy.Step())
)

// full is a row of which n tokens are taken.
func full(n int64) limiter.Row {
	if n == 0 {
		return limiter.Row{}
	}
	return limiter.Row{FullAt: settleTime + n*settleStep, At: settleTime, Period: settleStep, Limit: 3}
}

// TestRows and TestRowsThatChange show what carryOut decides. These are the races that it loses, and its errors.
func TestCarryOut(t *testing.T) {
	t.Parallel()
	op := func(kind limiter.OpKind, cost int64) limiter.Op {
		return limiter.Op{Kind: kind, Name: "n", Key: "k", Policy: settlePolicy, Cost: cost}
	}
	take, charge, block := op(limiter.OpTake, 1), op(limiter.OpCharge, 1), op(limiter.OpBlock, 10*settleStep)
	blocked := limiter.Row{FullAt: settleTime + 13*settleStep, At: settleTime, Period: settleStep, Limit: 3}
	type rows = []limiter.Row
	const swap, locked = "take read swap", " begin lock read swap commit rollback"
	undone := limiter.ErrNotApplied
	lost, second := []bool{false, false, false}, []bool{false, true}
	reads := rows{full(0), full(0), full(2)}
	for _, c := range []struct {
		name     string
		op       limiter.Op
		readings rows
		swaps    []bool
		fails    string // by errScript
		steps    string
		left     limiter.Row // by the last swap
		err      error
	}{
		{"every race lost: a take is refused", take, reads, lost, "", swap + locked + locked, full(3), nil},
		{"every race lost: a charge fails", charge, reads, lost, "", swap + locked + locked, full(3), undone},
		{"every race lost: a block fails", block, reads, lost, "", "read swap" + locked + locked, blocked, undone},
		{"the statement fails", take, nil, nil, "take", "take", limiter.Row{}, nil},
		{"the first read fails", take, rows{{}}, nil, "read", "take read", limiter.Row{}, nil},
		{"the first swap fails", take, reads, []bool{true}, "swap", swap, full(1), nil},
		{"the transaction fails to begin", take, reads, lost, "begin", swap + " begin", full(1), nil},
		{"the lock fails", take, reads, lost, "lock", swap + " begin lock rollback", full(1), nil},
		{"the second read fails", take, reads, lost, "read 2", swap + " begin lock read rollback", full(1), nil},
		{"the second swap fails", take, reads, second, "swap 2", swap + " begin lock read swap rollback", full(1), nil},
		{"the commit fails", take, reads, second, "commit", swap + locked, full(1), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &script{readings: c.readings, swaps: c.swaps, fails: c.fails}
			call := batch.NewCall(c.op)
			err := new(Store).carryOut(t.Context(), s, scripted(), &batch.Group{Calls: []*batch.Call{call}})
			if c.fails != "" {
				c.err = errScript
			}
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if steps := strings.Join(s.steps, " "); steps != c.steps {
				t.Errorf("steps %q, want %q", steps, c.steps)
			}
			if n := len(s.swapped); n > 0 && s.swapped[n-1] != c.left || n == 0 && c.left != (limiter.Row{}) {
				t.Errorf("swaps %+v, want the last to leave %+v", s.swapped, c.left)
			}
			if call.Decided() != (c.err == nil) || call.State().Took {
				t.Errorf("decided %t with %+v, want a refusal or an error", call.Decided(), call.State())
			}
		})
	}
}

// The second take does not fit beside the first one. A look at the row, which has another policy, would wait
// for the second one alone.
func TestWaitAfterEveryRaceIsLost(t *testing.T) {
	t.Parallel()
	larger := limiter.TokenBucket{Capacity: 4, Refill: 3, Interval: time.Hour}
	calls := make([]*batch.Call, 2)
	for i := range calls {
		calls[i] = batch.NewCall(limiter.Op{Kind: limiter.OpTake, Name: "n", Key: "k", Policy: larger, Cost: int64(1 + i)})
	}
	s := &script{readings: []limiter.Row{full(0), full(2), full(2)}, swaps: []bool{false, false, false}}
	if err := new(Store).settle(t.Context(), s, scripted(), calls); err != nil {
		t.Fatal(err)
	}
	row := full(2)
	for i, c := range calls {
		var want limiter.State
		row, want = c.Op.Apply(row, settleTime)
		if got := c.State(); got.Took || got.Wait != want.Wait {
			t.Errorf("take %d: %+v, want a refusal with Wait %d", i, got, want.Wait)
		}
	}
	peek := calls[1].Op
	peek.Kind = limiter.OpLook
	if _, look := peek.Apply(full(2), settleTime); look.Wait == calls[1].State().Wait {
		t.Errorf("a look has the same Wait %d, so the test shows nothing", look.Wait)
	}
}

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
	grant := func(number int64, name, key string) []any {
		return []any{number, name, key, int64(1), settleTime, settleTime, settleTime}
	}
	for _, c := range []struct {
		name string
		rows [][]any
		late error
		err  error
		took []bool // nil: no answers
	}{
		{"an added row comes with its key", [][]any{grant(0, "n", "6231"), grant(0, "n", "6230")}, nil, nil, []bool{true, true}},
		{"rows before a late error count for nothing", [][]any{grant(1, "", ""), grant(2, "", "")}, errScript, errScript, nil},
		{"a row of another key is an error", [][]any{grant(1, "", ""), grant(0, "n", "7a")}, nil, limiter.ErrOutcomeUnknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var groups []*batch.Group
			for i := range 2 {
				groups = append(groups, &batch.Group{Calls: []*batch.Call{batch.NewCall(limiter.Op{
					Kind: limiter.OpTake, Name: "n", Key: fmt.Sprint("b", i), Policy: settlePolicy, Cost: 1,
				})}})
			}
			table := scripted()
			table.sql.takes = "takes"
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
