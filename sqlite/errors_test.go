package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
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
	notApplied, unknown, misconfigured, invalid := limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid
	for _, c := range []struct {
		name        string
		err         error
		read, write error // the classes
		outage      bool  // whether the store is at fault: then no operation can succeed
	}{
		{"SQLITE_BUSY", &coded{5, "database is locked"}, notApplied, notApplied, true},
		{"SQLITE_BUSY_SNAPSHOT", &coded{517, "database is locked"}, notApplied, notApplied, true},
		{"SQLITE_LOCKED", &coded{6, "database table is locked"}, notApplied, notApplied, true},
		{"SQLITE_FULL", &coded{13, "database or disk is full"}, notApplied, notApplied, false},
		{"SQLITE_INTERRUPT", &coded{9, "interrupted"}, notApplied, notApplied, false},
		{"SQLITE_PROTOCOL", &coded{15, "locking protocol"}, notApplied, notApplied, true},
		{"SQLITE_SCHEMA", &coded{17, "schema changed"}, notApplied, notApplied, true},
		{"SQLITE_ABORT", &coded{4, "query aborted"}, notApplied, notApplied, true},
		{"no such table", &coded{1, "no such table: limiter_token_buckets"}, misconfigured, misconfigured, true},
		{"no such column", &coded{1, "no such column: win"}, misconfigured, misconfigured, true},
		{"syntax error", &coded{1, `near "RETURNING": syntax error`}, misconfigured, misconfigured, true},
		{"SQLITE_READONLY", &coded{8, "attempt to write a readonly database"}, misconfigured, misconfigured, true},
		{"SQLITE_READONLY_DBMOVED", &coded{8 | 4<<8, "attempt to write a readonly database"}, misconfigured, misconfigured, true},
		{"SQLITE_CANTOPEN", &coded{14, "unable to open database file"}, misconfigured, misconfigured, true},
		{"SQLITE_NOTADB", &coded{26, "file is not a database"}, misconfigured, misconfigured, true},
		{"SQLITE_CORRUPT", &coded{11, "database disk image is malformed"}, misconfigured, misconfigured, true},
		// Bad input says nothing about the store: the breaker ignores this class.
		{"SQLITE_CONSTRAINT_CHECK", &coded{19 | 1<<8, "CHECK constraint failed"}, invalid, invalid, true},
		{"SQLITE_MISMATCH", &coded{20, "datatype mismatch"}, invalid, invalid, true},
		{"SQLITE_TOOBIG", &coded{18, "string or blob too big"}, invalid, invalid, true},
		{"SQLITE_RANGE", &coded{25, "column index out of range"}, invalid, invalid, true},
		{"SQLITE_IOERR_FSYNC", &coded{10 | 4<<8, "disk I/O error"}, notApplied, unknown, true},
		{"SQLITE_NOMEM", &coded{7, "out of memory"}, notApplied, unknown, true},
		{"a driver without codes", errors.New("database is locked"), notApplied, notApplied, true},
		{"a full disk, without codes", errors.New("database or disk is full"), notApplied, notApplied, false},
		{"no tables, without codes", errors.New("no such table: x"), misconfigured, misconfigured, true},
		{"a wrapped code", fmt.Errorf("driver: %w", &coded{5, "x"}), notApplied, notApplied, true},
		{"anything else", errors.New("lightning"), notApplied, unknown, true},
		{"a transaction rolled back", sql.ErrTxDone, notApplied, notApplied, true},
		{"a closed pool", errors.New("sql: database is closed"), notApplied, notApplied, true},
		{"a closed statement", errors.New("sql: statement is closed"), notApplied, notApplied, true},
		{"a canceled context", context.Canceled, notApplied, unknown, true},
		{"a deadline", context.DeadlineExceeded, notApplied, unknown, true},
		{"classified", fmt.Errorf("%w: here", limiter.ErrInvalid), invalid, invalid, true},
	} {
		for writes, want := range map[bool]error{false: c.read, true: c.write} {
			got := sqlite.InterpretError(c.err, writes)
			for _, class := range classes {
				if is := errors.Is(got, class); is != (class == want) {
					t.Errorf("%s, writes %v: %q matches %q: %v", c.name, writes, got, class, is)
				}
			}
			if !errors.Is(got, c.err) {
				t.Errorf("%s: %q does not match its cause", c.name, got)
			}
			if outage := sqlite.IsOutage(got); outage != c.outage {
				t.Errorf("%s, writes %v: the store is at fault: %v, want %v", c.name, writes, outage, c.outage)
			}
		}
	}
	if err := sqlite.InterpretError(nil, true); err != nil {
		t.Errorf("no error became %v", err)
	}
}
