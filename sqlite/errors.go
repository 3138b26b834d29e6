package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// runUp is what makes the tables, or records those that exist.
const runUp = "run limiter migrate up, or migrations.Up(ctx, migrations.SQLite, store.DB())"

// migrateTables is advice for tables that the statements cannot use.
var migrateTables = fmt.Sprintf("the tables are missing, or differ from those of migration %d; %s, or goose: "+
	"see https://github.com/sqlimit/limiter/blob/main/docs/operations.md#create-the-tables", schemaVersion, runUp)

// errClosed is returned for an operation after Close.
var errClosed = fmt.Errorf("%w: the Store or its database is closed; make a new one", limiter.ErrNotApplied)

// interpretError gives an error its class and keeps the driver's error. A statement that SQLite
// answered with a result code did nothing, unless the disk failed, which may be after the commit.
// writes says whether the statement may have changed anything.
func interpretError(ctx context.Context, err error, writes bool) error {
	if err == nil || opcontext.Classified(err) {
		return err
	}
	class, advice := classify(err, writes)
	if ctx.Err() != nil && (errors.Is(class, limiter.ErrNotApplied) || errors.Is(class, limiter.ErrOutcomeUnknown)) {
		return opcontext.Interrupted(ctx, class, err)
	}
	if advice != "" {
		return fmt.Errorf("%w: %s: %w", class, advice, err)
	}
	return fmt.Errorf("%w: %w", class, err)
}

// classify returns the class of err and, if somebody must act, what to do.
func classify(err error, writes bool) (class error, advice string) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if writes {
			return limiter.ErrOutcomeUnknown, ""
		}
		return limiter.ErrNotApplied, ""
	}
	text, code := err.Error(), sqlitecode.Of(err)
	if advice := sqlitecode.Advice(code); advice != "" {
		return limiter.ErrMisconfigured, advice
	}
	switch code {
	case sqlitecode.Error:
		// The statements never change. They fail only if the tables or the release of SQLite do not fit.
		if strings.Contains(text, "no such table") || strings.Contains(text, "no such column") || strings.Contains(text, "has no column") {
			return limiter.ErrMisconfigured, migrateTables
		}
		return limiter.ErrMisconfigured, "SQLite does not know the statement; it needs release 3.42 or later"
	case sqlitecode.Busy, sqlitecode.Locked:
		return limiter.ErrNotApplied, "another connection kept the database locked"
	case sqlitecode.Full:
		return limiter.ErrNotApplied, "there is no room in the log, or for another key; free space on the disk"
	case sqlitecode.Protocol, sqlitecode.Schema, sqlitecode.Abort, sqlitecode.Interrupt:
		return limiter.ErrNotApplied, ""
	case sqlitecode.Constraint, sqlitecode.Mismatch, sqlitecode.TooBig, sqlitecode.Range:
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

// isOutage reports whether a failure means that no operation can succeed at the moment. On a full disk,
// keys that have a row are still decided: see free_pages.go.
func isOutage(err error) bool {
	code := sqlitecode.Of(err)
	return code != sqlitecode.Full && code != sqlitecode.Interrupt
}
