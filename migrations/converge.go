package migrations

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

const (
	// longestWait is the longest wait for others that migrate the same database. A migration takes
	// milliseconds on empty tables.
	longestWait = time.Minute

	// maxRaces is how often a step may lose to another process. After each loss another process has
	// applied or removed a version, so a few are many.
	maxRaces = 10

	firstPause, longestPause = 5 * time.Millisecond, 100 * time.Millisecond
)

// converge runs step until it succeeds, fails for a reason of its own, or must not wait any longer.
// step must do nothing if there is nothing left to do.
//
// If step fails, converge reads the version table. If it has changed since before the step, another
// process has migrated the database (its "create" makes ours fail), and step runs again. If nothing
// has changed, the error is the step's own. So no list of each driver's error codes is needed.
//
// If a SQLite database is locked, converge tries again. The driver's own busy timeout belongs to
// the caller and may be 0. Nor can it help a transaction whose view of the database is out of date.
func (m *migrator) converge(ctx context.Context, step func() error) error {
	if err := m.checkSchema(ctx); err != nil {
		return canceled(ctx, m.explain(err))
	}
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	delay := firstPause
	for races := 0; ; {
		before, err := m.versions.applied(ctx, m.db)
		if err == nil {
			if err = step(); err == nil {
				return nil
			}
		}
		if ctx.Err() != nil {
			return canceled(ctx, err)
		}
		if m.dialect == SQLite && sqlitecode.IsBusy(err) {
			if !pause(waiting, delay) {
				return canceled(ctx, fmt.Errorf("migrations: the database stayed locked: %w", err))
			}
			delay = min(2*delay, longestPause)
			continue
		}
		if races++; races > maxRaces {
			return m.explain(err)
		}
		if errors.Is(err, errRaced) {
			continue
		}
		if after, lookErr := m.versions.applied(ctx, m.db); !sqlitecode.IsBusy(lookErr) && (lookErr != nil || after == before) {
			return m.explain(err)
		}
	}
}

// checkSchema fails if the schema does not exist in PostgreSQL. The caller must create it, because
// the caller decides on its owner and privileges.
func (m *migrator) checkSchema(ctx context.Context) error {
	if m.dialect != Postgres {
		return nil
	}
	var n int64
	row := m.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1`, m.schema)
	if err := row.Scan(&n); err != nil {
		return fmt.Errorf("migrations: look for schema %s: %w", pgschema.Quote(m.schema), err)
	}
	if n == 0 {
		return fmt.Errorf("%w: migrations: schema %s does not exist in this database: run CREATE SCHEMA %s first, or pass another name to WithSchema",
			limiter.ErrMisconfigured, pgschema.Quote(m.schema), pgschema.Quote(m.schema))
	}
	return nil
}

// canceled returns [limiter.ErrCanceled] if ctx ended. Drivers report that in different ways.
func canceled(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: migrations: %w: %w", limiter.ErrCanceled, ctx.Err(), err)
}

// explain adds a class and advice to errors that an operator can fix. Missing privileges are
// frequent: since version 15, PostgreSQL lets only the owner of a database create tables in schema
// public.
func (m *migrator) explain(err error) error {
	if errors.Is(err, limiter.ErrMisconfigured) {
		return err
	}
	if advice := m.advice(err); advice != "" {
		return fmt.Errorf("%w: %s: %w", limiter.ErrMisconfigured, advice, err)
	}
	return err
}

// advice returns what to do about err, "" if only err itself can tell.
func (m *migrator) advice(err error) string {
	const insufficientPrivilege = "42501"
	var state string // no SQLite driver has one
	if coder, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		state = coder.SQLState()
	}
	switch {
	case m.dialect == SQLite && state != "":
		return "is this a SQLite database? For PostgreSQL pass migrations.Postgres"
	case m.dialect == Postgres && strings.Contains(err.Error(), "no such table: pg_catalog."):
		return "is this a PostgreSQL database? For SQLite pass migrations.SQLite"
	case state == insufficientPrivilege:
		return fmt.Sprintf("to migrate, a role needs USAGE and CREATE on schema %s and must own the tables of limiter and %[2]s; for Status, USAGE and SELECT on %[2]s",
			pgschema.Quote(m.schema), m.versions.Tablename())
	case strings.HasPrefix(state, "42"), state == "" && sqlitecode.Of(err) == sqlitecode.Error:
		return m.adviceOnObjects(err)
	case state == "":
		return sqlitecode.Advice(sqlitecode.Of(err))
	}
	return ""
}

// adviceOnObjects is advice for a statement that failed because of what the
// database holds.
func (m *migrator) adviceOnObjects(err error) string {
	switch {
	case errors.Is(err, errUnreadable):
		return fmt.Sprintf("table %s is not goose's: drop or rename it", m.versions.Tablename())
	case strings.Contains(err.Error(), "already"):
		return "an object that is not limiter's has one of its names: drop or rename it"
	case m.drops != "":
		return fmt.Sprintf("the tables may not be as the migrations made them: change them, or "+
			"drop them with the state of every key and all overrides (%s)", m.drops)
	}
	return ""
}

// pause waits for a random time between half of d and d, so that two processes do not collide
// again. It reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
