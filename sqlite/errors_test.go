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
	classes := []error{limiter.ErrInvalid, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrCanceled}
	for _, c := range []struct {
		name       string
		err        error
		read, want error // want is the class for a statement that writes
	}{
		{"SQLITE_BUSY", &coded{5, "database is locked"}, limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"SQLITE_BUSY_SNAPSHOT", &coded{517, "database is locked"}, limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"SQLITE_LOCKED", &coded{6, "database table is locked"}, limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"SQLITE_FULL", &coded{13, "database or disk is full"}, limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"SQLITE_INTERRUPT", &coded{9, "interrupted"}, limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"no such table", &coded{1, "no such table: limiter_token_buckets"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"no such column", &coded{1, "no such column: win"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"syntax error", &coded{1, `near "RETURNING": syntax error`}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"SQLITE_READONLY", &coded{8, "attempt to write a readonly database"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"SQLITE_READONLY_DBMOVED", &coded{8 | 4<<8, "attempt to write a readonly database"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"SQLITE_CANTOPEN", &coded{14, "unable to open database file"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"SQLITE_NOTADB", &coded{26, "file is not a database"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"SQLITE_CORRUPT", &coded{11, "database disk image is malformed"}, limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"SQLITE_CONSTRAINT_CHECK", &coded{19 | 1<<8, "CHECK constraint failed"}, limiter.ErrInvalid, limiter.ErrInvalid},
		{"SQLITE_MISMATCH", &coded{20, "datatype mismatch"}, limiter.ErrInvalid, limiter.ErrInvalid},
		{"SQLITE_TOOBIG", &coded{18, "string or blob too big"}, limiter.ErrInvalid, limiter.ErrInvalid},
		{"SQLITE_IOERR_FSYNC", &coded{10 | 4<<8, "disk I/O error"}, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown},
		{"SQLITE_NOMEM", &coded{7, "out of memory"}, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown},
		{"a driver without codes", errors.New("database is locked"), limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"no tables, without codes", errors.New("no such table: x"), limiter.ErrMisconfigured, limiter.ErrMisconfigured},
		{"a wrapped code", fmt.Errorf("driver: %w", &coded{5, "x"}), limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"anything else", errors.New("lightning"), limiter.ErrNotApplied, limiter.ErrOutcomeUnknown},
		{"a transaction rolled back", sql.ErrTxDone, limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"a closed pool", errors.New("sql: database is closed"), limiter.ErrNotApplied, limiter.ErrNotApplied},
		{"classified", fmt.Errorf("%w: here", limiter.ErrInvalid), limiter.ErrInvalid, limiter.ErrInvalid},
	} {
		for _, writes := range []bool{false, true} {
			want := c.read
			if writes {
				want = c.want
			}
			got := sqlite.InterpretError(c.err, writes)
			for _, class := range classes {
				if is := errors.Is(got, class); is != (class == want) {
					t.Errorf("%s, writes %v: %q matches %q: %v", c.name, writes, got, class, is)
				}
			}
			if !errors.Is(got, c.err) {
				t.Errorf("%s: %q does not match its cause", c.name, got)
			}
		}
	}
	if err := sqlite.InterpretError(nil, true); err != nil {
		t.Errorf("no error became %v", err)
	}
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		read, write := sqlite.InterpretError(cause, false), sqlite.InterpretError(cause, true)
		if !errors.Is(read, limiter.ErrNotApplied) || !errors.Is(read, cause) || errors.Is(read, limiter.ErrOutcomeUnknown) {
			t.Errorf("%v in a read became %v", cause, read)
		}
		if !errors.Is(write, limiter.ErrOutcomeUnknown) || !errors.Is(write, cause) || errors.Is(write, limiter.ErrNotApplied) {
			t.Errorf("%v in a write became %v", cause, write)
		}
	}
}
