package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

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
		{1, "no such table: t"}:               "differ from those of migration 1; run migrations.Up",
		{1, "no such column: c"}:              "the tables are missing",
		{1, "table t has no column named c"}:  "the tables are missing",
		{1, `near "RETURNING": syntax error`}: "it needs release 3.42",
		{17, "SQLITE_SCHEMA"}:                 "not applied: SQLITE_SCHEMA",
	} {
		testenv.Contains(t, fmt.Sprint(err, ": ", sqlite.InterpretError(t.Context(), err, true)), want)
	}
}
