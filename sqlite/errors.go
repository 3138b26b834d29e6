package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter"
)

// Primary result codes of SQLite, see https://www.sqlite.org/rescode.html.
const (
	codeError      = 1
	codePerm       = 3
	codeAbort      = 4
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeInterrupt  = 9
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeProtocol   = 15
	codeSchema     = 17
	codeTooBig     = 18
	codeConstraint = 19
	codeMismatch   = 20
	codeAuth       = 23
	codeRange      = 25
	codeNotADB     = 26
)

const mendTables = "the tables of limiter are missing or of another version; run migrations.Up(ctx, migrations.SQLite, store.DB()), or in a shell: goose -dir migrations/sqlite -table limiter_goose_version sqlite3 app.db up"

// errClosed is returned for an operation after Close.
var errClosed = fmt.Errorf("%w: the Store or its database is closed; make a new one", limiter.ErrNotApplied)

// interpretError gives an error its class: one of the limiter's errors, with the driver's behind it.
// A statement that SQLite answered with a result code did nothing, except where the disk failed, which
// may have been after the commit. writes tells whether the statement may have changed anything.
func interpretError(ctx context.Context, err error, writes bool) error {
	if err == nil || classified(err) {
		return err
	}
	class, mend := classify(err, writes)
	if ctx.Err() != nil && errors.Is(class, limiter.ErrNotApplied) {
		return fmt.Errorf("%w: %w", canceled(ctx.Err()), err)
	}
	if mend != "" {
		return fmt.Errorf("%w: %s: %w", class, mend, err)
	}
	return fmt.Errorf("%w: %w", class, err)
}

// classify returns the class of err and, where somebody must act, what to do.
func classify(err error, writes bool) (class error, mend string) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if writes {
			return fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown), ""
		}
		return limiter.ErrCanceled, ""
	}
	text := err.Error()
	switch codeOf(err) {
	case codeError:
		// Our statements never change, so they fail as such only where the tables, or the release of
		// SQLite, are not what they were written for.
		if strings.Contains(text, "no such table") || strings.Contains(text, "no such column") || strings.Contains(text, "has no column") {
			return limiter.ErrMisconfigured, mendTables
		}
		return limiter.ErrMisconfigured, "SQLite does not know the statement; it needs release 3.42 or later"
	case codeReadOnly:
		return limiter.ErrMisconfigured, "the database cannot be written; mend the permissions of the file and its directory, or the parameters of the connection"
	case codeCantOpen, codePerm, codeAuth:
		return limiter.ErrMisconfigured, "the database cannot be opened; see that its directory exists and that this process may write there"
	case codeNotADB, codeCorrupt:
		return limiter.ErrMisconfigured, "the file is not an intact SQLite database; restore it, or remove it with its -wal and -shm files to start anew"
	case codeBusy, codeLocked:
		return limiter.ErrNotApplied, "another connection kept the database locked"
	case codeFull, codeProtocol, codeSchema, codeAbort, codeInterrupt:
		return limiter.ErrNotApplied, ""
	case codeConstraint, codeMismatch, codeTooBig, codeRange:
		return limiter.ErrInvalid, "the database does not take the values"
	}
	switch {
	case !writes, errors.Is(err, sql.ErrTxDone): // rolled back, when its context ended
		return limiter.ErrNotApplied, ""
	case strings.HasSuffix(text, "sql: database is closed"), strings.HasSuffix(text, "sql: statement is closed"):
		return errClosed, "" // database/sql has no names for these errors
	}
	return limiter.ErrOutcomeUnknown, ""
}

// classified reports whether err has its class already.
func classified(err error) bool {
	return errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) ||
		errors.Is(err, limiter.ErrMisconfigured) || errors.Is(err, limiter.ErrInvalid) ||
		errors.Is(err, limiter.ErrCanceled)
}

// canceled tells that the caller's context ended and that the statement did not run.
func canceled(cause error) error {
	return fmt.Errorf("%w: %w", limiter.ErrCanceled, cause)
}

func unsupported(p limiter.Policy) error {
	return fmt.Errorf("policy %T: %w", p, errors.ErrUnsupported)
}

// isBusy reports whether a lock of another connection was in the way, so that nothing was done.
func isBusy(err error) bool {
	c := codeOf(err)
	return c == codeBusy || c == codeLocked
}

// codeOf returns the primary result code of SQLite in err, 0 if there is none. Drivers that have no
// method for it still pass on SQLite's own words, which do not change; those for what is met most
// are looked for.
func codeOf(err error) int {
	if coder, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return coder.Code() & 0xff // the upper bits hold the extended code
	}
	text := err.Error()
	for _, c := range []struct {
		text string
		code int
	}{
		{"database is locked", codeBusy},
		{"database table is locked", codeLocked},
		{"no such table", codeError},
		{"no such column", codeError},
		{"has no column", codeError},
		{"attempt to write a readonly database", codeReadOnly},
		{"database or disk is full", codeFull},
		{"unable to open database file", codeCantOpen},
	} {
		if strings.Contains(text, c.text) {
			return c.code
		}
	}
	return 0
}
