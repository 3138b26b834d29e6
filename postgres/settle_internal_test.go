package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

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

func (s *script) Commit(context.Context) error   { return s.step("commit") }
func (s *script) Rollback(context.Context) error { return nil }
func (s *script) Conn() *pgx.Conn                { return nil }

const settleTime = 1_800_000_000_000_000_000

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

func TestCarryOutGoesFromTheStatementToTheLock(t *testing.T) {
	t.Parallel()
	op := func(kind limiter.OpKind, cost int64) limiter.Op {
		return limiter.Op{Kind: kind, Name: "n", Key: "k", Policy: settlePolicy, Cost: cost}
	}
	take, poll := op(limiter.OpTake, 1), op(limiter.OpLook, 1)
	poll.Policy = limiter.PerMinute(3)
	converted, _ := poll.Apply(full(3), settleTime)
	const underLock = "begin lock read swap commit"
	cases := []struct {
		name     string
		ops      []limiter.Op
		readings []limiter.Row
		swaps    []bool
		fails    string
		steps    string
		took     []bool      // nil: no answers
		left     limiter.Row // by the last swap
		err      error
	}{
		{name: "a take that the statement does not decide", ops: []limiter.Op{take}, readings: []limiter.Row{full(1)}, swaps: []bool{true}, steps: "take read swap", took: []bool{true}, left: full(2)},
		{name: "a take without a row", ops: []limiter.Op{take}, readings: []limiter.Row{full(0)}, swaps: []bool{true}, steps: "take read swap", took: []bool{true}, left: full(1)},
		{name: "a refusal writes nothing", ops: []limiter.Op{take}, readings: []limiter.Row{full(3)}, steps: "take read", took: []bool{false}},
		{name: "a look", ops: []limiter.Op{op(limiter.OpLook, 0)}, readings: []limiter.Row{full(1)}, steps: "read", took: []bool{false}},
		{name: "a look that converts", ops: []limiter.Op{poll}, readings: []limiter.Row{full(3)}, swaps: []bool{true}, steps: "read swap", took: []bool{false}, left: converted},
		{name: "a look that loses the race", ops: []limiter.Op{poll}, readings: []limiter.Row{full(3)}, swaps: []bool{false}, steps: "read swap", took: []bool{false}, left: converted},
		{name: "a lost race", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), full(2)}, swaps: []bool{false, true}, steps: "take read swap " + underLock, took: []bool{true}, left: full(3)},
		{name: "a lost race, then refused under the lock", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), full(3)}, swaps: []bool{false}, steps: "take read swap begin lock read commit", took: []bool{false}, left: full(1)},
		{name: "a row that was just added", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), full(0), full(2)}, swaps: []bool{false, false, true}, steps: "take read swap " + underLock + " " + underLock, took: []bool{true}, left: full(3)},
		{name: "every race lost", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), full(0), full(2)}, swaps: []bool{false, false, false}, steps: "take read swap " + underLock + " " + underLock, took: []bool{false}, left: full(3)},

		{name: "takes of several costs", ops: []limiter.Op{take, op(limiter.OpTake, 3), take, take}, readings: []limiter.Row{full(1)}, swaps: []bool{true}, steps: "read swap", took: []bool{true, false, true, false}, left: full(3)},
		{name: "takes that the row refuses", ops: []limiter.Op{op(limiter.OpTake, 2), op(limiter.OpTake, 3)}, readings: []limiter.Row{full(2)}, steps: "read", took: []bool{false, false}},

		{name: "the statement fails", ops: []limiter.Op{take}, fails: "take", steps: "take", err: errScript},
		{name: "the first read fails", ops: []limiter.Op{take}, readings: []limiter.Row{{}}, fails: "read", steps: "take read", err: errScript},
		{name: "the first swap fails", ops: []limiter.Op{take}, readings: []limiter.Row{full(0)}, swaps: []bool{true}, fails: "swap", steps: "take read swap", left: full(1), err: errScript},
		{name: "the transaction fails to begin", ops: []limiter.Op{take}, readings: []limiter.Row{full(0)}, swaps: []bool{false}, fails: "begin", steps: "take read swap begin", left: full(1), err: errScript},
		{name: "the lock fails", ops: []limiter.Op{take}, readings: []limiter.Row{full(0)}, swaps: []bool{false}, fails: "lock", steps: "take read swap begin lock", left: full(1), err: errScript},
		{name: "the read under the lock fails", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), {}}, swaps: []bool{false}, fails: "read 2", steps: "take read swap begin lock read", left: full(1), err: errScript},
		{name: "the swap under the lock fails", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), full(1)}, swaps: []bool{false, true}, fails: "swap 2", steps: "take read swap begin lock read swap", left: full(2), err: errScript},
		{name: "the commit fails", ops: []limiter.Op{take}, readings: []limiter.Row{full(0), full(1)}, swaps: []bool{false, true}, fails: "commit", steps: "take read swap " + underLock, left: full(2), err: errScript},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &script{readings: c.readings, swaps: c.swaps, fails: c.fails}
			g := &batch.Group{}
			for _, op := range c.ops {
				g.Calls = append(g.Calls, batch.NewCall(op))
			}
			err := new(Store).carryOut(t.Context(), s, scripted(), g)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if steps := strings.Join(s.steps, " "); steps != c.steps {
				t.Errorf("steps %q, want %q", steps, c.steps)
			}
			if n := len(s.swapped); n > 0 && s.swapped[n-1] != c.left || n == 0 && c.left != (limiter.Row{}) {
				t.Errorf("swaps %+v, want the last to leave %+v", s.swapped, c.left)
			}
			var took []bool
			for _, call := range g.Calls {
				if call.Decided() {
					took = append(took, call.State().Took)
				}
			}
			if !slices.Equal(took, c.took) {
				t.Errorf("answers %v, want %v", took, c.took)
			}
		})
	}
}

func TestSettleTellsATakeThatLosesEveryRaceItsOwnWait(t *testing.T) {
	t.Parallel()
	larger := limiter.TokenBucket{Capacity: 100, Refill: 1, Interval: settlePolicy.Step()}
	c := batch.NewCall(limiter.Op{Kind: limiter.OpTake, Name: "n", Key: "k", Policy: larger, Cost: 50})
	s := &script{readings: []limiter.Row{full(3), full(3), full(3)}, swaps: []bool{false, false, false}}
	if err := new(Store).settle(t.Context(), s, scripted(), []*batch.Call{c}); err != nil {
		t.Fatal(err)
	}
	_, want := c.Op.Apply(full(3), settleTime)
	if got := c.State(); got.Took || got.Wait != want.Wait {
		t.Errorf("state %+v, want a refusal with Wait %d", got, want.Wait)
	}
}
