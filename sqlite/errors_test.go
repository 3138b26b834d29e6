package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// coded is an error as drivers return them: with SQLite's extended result code.
type coded struct {
	code int
	text string
}

func (c *coded) Error() string { return c.text }
func (c *coded) Code() int     { return c.code }

func TestInterpretError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	notApplied, unknown, misconfigured, invalid := limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid
	for _, c := range []struct {
		read, write error // the classes
		outage      bool  // whether the store is at fault: then no operation can succeed
		errs        []error
	}{
		{notApplied, notApplied, true, []error{
			&coded{5, "SQLITE_BUSY"}, &coded{517, "SQLITE_BUSY_SNAPSHOT"}, &coded{261, "SQLITE_BUSY_RECOVERY"}, &coded{6, "SQLITE_LOCKED"}, &coded{15, "SQLITE_PROTOCOL"},
			&coded{17, "SQLITE_SCHEMA"}, &coded{4, "SQLITE_ABORT"}, fmt.Errorf("driver: %w", &coded{5, "a wrapped code"}),
			errors.New("database is locked"), fmt.Errorf("driver: %w", sql.ErrTxDone), errors.New("x: sql: database is closed"), errors.New("x: sql: statement is closed"),
		}},
		{notApplied, notApplied, false, []error{&coded{13, "SQLITE_FULL"}, &coded{9, "SQLITE_INTERRUPT"}, errors.New("database or disk is full")}},
		{misconfigured, misconfigured, true, []error{
			&coded{1, "no such table: limiter_token_buckets"}, &coded{1, "no such column: win"}, &coded{1, `near "RETURNING": syntax error`},
			&coded{8, "SQLITE_READONLY"}, &coded{8 | 4<<8, "SQLITE_READONLY_DBMOVED"}, &coded{14, "SQLITE_CANTOPEN"},
			&coded{26, "SQLITE_NOTADB"}, &coded{11, "SQLITE_CORRUPT"}, errors.New("no such table: x"),
		}},
		// Bad input says nothing about the store: the breaker ignores this class.
		{invalid, invalid, true, []error{
			&coded{19 | 1<<8, "SQLITE_CONSTRAINT_CHECK"}, &coded{20, "SQLITE_MISMATCH"}, &coded{18, "SQLITE_TOOBIG"},
			&coded{25, "SQLITE_RANGE"}, fmt.Errorf("%w: classified", limiter.ErrInvalid),
		}},
		{notApplied, unknown, true, []error{
			&coded{10 | 4<<8, "SQLITE_IOERR_FSYNC"}, &coded{7, "SQLITE_NOMEM"}, errors.New("lightning"), context.Canceled, context.DeadlineExceeded,
		}},
		{notApplied, unknown, false, []error{ // the driver interrupted the statement
			fmt.Errorf("%w: %w", &coded{9, "SQLITE_INTERRUPT"}, context.Canceled),
			fmt.Errorf("%w: %w", &coded{9, "SQLITE_INTERRUPT"}, context.DeadlineExceeded),
		}},
	} {
		for _, err := range c.errs {
			for writes, want := range map[bool]error{false: c.read, true: c.write} {
				for _, ctx := range []context.Context{t.Context(), ended} {
					got := sqlite.InterpretError(ctx, err, writes)
					// If the caller left, ErrCanceled replaces ErrNotApplied, and joins ErrOutcomeUnknown.
					left := ctx == ended && (want == notApplied || want == unknown)
					for _, class := range classes {
						matches := class == want && !(left && want == notApplied) || left && class == limiter.ErrCanceled
						testenv.Equal(t, errors.Is(got, class), matches, err, "writes", writes, "context", ctx.Err(), got, "matches", class)
					}
					testenv.ErrorIs(t, got, err, "writes", writes, "context", ctx.Err(), "an error matches its cause")
					testenv.Equal(t, sqlite.IsOutage(got), c.outage, err, "writes", writes, "context", ctx.Err(), "the store is at fault")
				}
			}
		}
	}
	must(t, sqlite.InterpretError(t.Context(), nil, true))
	for err, want := range map[*coded]string{
		{1, "no such table: t"}:               "differ from those of migration 1; run limiter migrate up, or migrations.Up",
		{1, "no such column: c"}:              "the tables are missing",
		{1, "table t has no column named c"}:  "the tables are missing",
		{1, `near "RETURNING": syntax error`}: "it needs release 3.42",
		{17, "SQLITE_SCHEMA"}:                 "not applied: SQLITE_SCHEMA",
	} {
		testenv.Contains(t, fmt.Sprint(err, ": ", sqlite.InterpretError(t.Context(), err, true)), want)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	op := func(kind limiter.OpKind, cost int64) limiter.Op {
		op := takeOf("l", "a", slow, cost)
		op.Kind = kind
		return op
	}
	for pool, open := range openers {
		for _, c := range []struct {
			name string
			ops  []limiter.Op
			all  bool // the last two at once
			want limiter.StoreStats
		}{
			{
				"one operation of each other kind, and a refusal",
				[]limiter.Op{op(limiter.OpLook, 1), op(limiter.OpTakeUpTo, 50), op(limiter.OpTake, 1), op(limiter.OpCharge, 1), op(limiter.OpRefund, 1), op(limiter.OpBlock, 1), op(limiter.OpReset, 1)},
				false,
				limiter.StoreStats{Statements: 7, Rows: 7, Units: 7},
			},
			{
				"a take from a row of another policy",
				[]limiter.Op{op(limiter.OpTake, 1), takeOf("l", "a", limiter.TokenBucket{Capacity: 7, Refill: 1, Interval: time.Hour}, 1)},
				false,
				limiter.StoreStats{Statements: 2, Rows: 2, Units: 2, SecondLooks: 1},
			},
			{"two limits at once", []limiter.Op{op(limiter.OpTake, 1), takeOf("l", "a", window, 1)}, true, limiter.StoreStats{Statements: 1, Rows: 2, Units: 2}},
		} {
			store := open(t)
			for n := range slices.Chunk(c.ops, map[bool]int{true: 2, false: 1}[c.all]) {
				must(t, testenv.ErrorOf(doAll(t.Context(), store, n)))
			}
			testenv.Equal(t, store.Stats(), c.want, pool, c.name)
		}
	}
}

func TestStatsOfTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, full := openFile(t), request(0, 2)
		full[0].Cost, full[1].Cost = 50, 50
		must(t, testenv.ErrorOf(store.DoAll(t.Context(), full)))
		_, unlock := lock(t, store)
		const callers = 12
		var all sync.WaitGroup
		for i := range int64(callers) { // the first one waits for the lock, and the others for it
			all.Go(func() { must(t, testenv.ErrorOf(store.Do(t.Context(), takeOf("l", "hot", slow, 1)))) })
			synctest.Wait()
			testenv.Equal(t, store.Stats().Queued, i, "queued")
		}
		endless := request(2, 1) // it has no time limit
		endless[0].Timeout = 0
		ctx, leave := context.WithCancel(t.Context())
		for queued, ops := range map[int64][]limiter.Op{2: request(1, 2), 1: endless} {
			before := store.Stats().Queued
			all.Go(func() { must(t, testenv.ErrorOf(doAll(t.Context(), store, ops))) })
			all.Go(func() { testenv.ErrorIs(t, testenv.ErrorOf(doAll(ctx, store, ops)), limiter.ErrCanceled) })
			synctest.Wait()
			testenv.Equal(t, store.Stats().Queued, before+2*queued, "queued")
		}
		leave()
		synctest.Wait()
		must(t, testenv.ErrorOf(store.DoAll(t.Context(), full))) // a refusal waits for nobody
		unlock()
		all.Wait()
		// The second caller waits alone. Those behind it share a transaction.
		want := limiter.StoreStats{Statements: 7, Rows: 10, Units: callers + 7}
		testenv.Equal(t, store.Stats(), want)
		look := takeOf("l", "hot", limiter.TokenBucket{Capacity: 40, Refill: 1, Interval: time.Hour}, 40)
		look.Kind = limiter.OpLook
		must(t, testenv.ErrorOf(store.Do(t.Context(), look)))
		testenv.Equal(t, read(t, store, look).Limit, 40, "the limit in the row after a look with another policy")
	})
}

// The breaker opens for the row on which a decision failed.
func TestBreakerOfSeveralLimits(t *testing.T) {
	t.Parallel()
	for i, fault := range []string{
		"CREATE TRIGGER fails BEFORE INSERT ON limiter_token_buckets BEGIN INSERT INTO missing VALUES (1); END",
		"DROP TABLE limiter_fixed_windows",
	} {
		store, ops := openFile(t), request(1, 2)
		execute(t, store, fault)
		for range 5 {
			testenv.ErrorIs(t, testenv.ErrorOf(store.DoAll(t.Context(), ops)), limiter.ErrMisconfigured, fault)
		}
		for _, blocked := range [][]limiter.Op{ops, ops[i : i+1]} {
			testenv.Contains(t, fmt.Sprint(fault, ": ", testenv.ErrorOf(doAll(t.Context(), store, blocked))), "not sent")
		}
		testenv.Equal(t, store.Stats(), limiter.StoreStats{Statements: 5, Rows: 10, Units: 10, BreakerOpen: true, BreakerOpenings: 1})
		must(t, testenv.ErrorOf(store.Do(t.Context(), ops[1-i])))
	}
}
