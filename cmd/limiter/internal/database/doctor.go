package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlimit/limiter/migrations"
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Advice string `json:"advice"` // what to do; empty if OK
}

// report collects findings.
type report struct {
	findings []Finding
	late     bool // a check did not end in time
}

func (r *report) ok(check, format string, args ...any) {
	r.findings = append(r.findings, Finding{check, true, fmt.Sprintf(format, args...), ""})
}

func (r *report) bad(check, advice, format string, args ...any) {
	r.findings = append(r.findings, Finding{check, false, fmt.Sprintf(format, args...), advice})
}

// failed reports that a check could not be made. If the time is over, so is that of all later checks.
func (r *report) failed(check string, err error) {
	advice := "fix the cause and run limiter doctor again"
	if errors.Is(err, context.DeadlineExceeded) {
		if r.late {
			return
		}
		r.late = true
		advice = "look for a session that holds a lock, in PostgreSQL in pg_stat_activity, or pass a longer --timeout"
	}
	r.bad(check, advice, "the check failed: %s", Line(err))
}

// Doctor checks everything that the stores need. The error is that of a failed connection, which
// is then also a finding.
func (db *DB) Doctor(ctx context.Context) ([]Finding, error) {
	var r report
	if err := db.Explain(db.SQL.PingContext(ctx)); err != nil {
		advice := "check the URL, and that the server runs and lets this host and role in"
		if db.Dialect == migrations.SQLite {
			advice = "check the path: it must be that of a SQLite file that this account may read and write"
		}
		r.bad("connection", advice, "%s", Line(err))
		return r.findings, err
	}
	r.ok("connection", "the database answers")
	if db.Dialect == migrations.Postgres {
		return db.doctorPostgres(ctx, &r)
	}
	return db.doctorSQLite(ctx, &r)
}

// migrations checks that no migration is missing. If the tables are complete but there is no version table,
// another tool made them.
func (r *report) migrations(ctx context.Context, db *DB, complete bool) {
	list, err := migrations.Status(ctx, db.Dialect, db.SQL, db.Migrations()...)
	switch {
	case isDenied(err): // checkTables finds out what the role may not do but needs
		r.ok("migrations", "not known, because the role may not read limiter_goose_version; applications need not")
		return
	case err != nil:
		r.failed("migrations", err)
		return
	}
	applied := 0
	for _, m := range list {
		if m.Applied {
			applied++
		}
	}
	if complete && applied == 0 {
		err = db.SQL.QueryRowContext(ctx, db.text("SELECT count(*) FROM @limiter_goose_version")).Scan(new(int))
	}
	switch {
	case err != nil && !isMissing(err):
		r.failed("migrations", err)
	case err != nil:
		r.ok("migrations", "not recorded, because another tool made the tables")
	case applied < len(list):
		r.bad("migrations", "run limiter migrate up", "%d of %d applied", applied, len(list))
	default:
		r.ok("migrations", "%d of %d applied", applied, len(list))
	}
}

// restoreAdvice is for tables that exist, but not as the migrations make them.
const restoreAdvice = `restore what is missing: see docs/operations.md, "Restored backups"`

// minExpired is how many expired rows are worth a sweep.
const minExpired = 10_000

// expired checks how many rows wait for a sweep.
func (r *report) expired(ctx context.Context, db *DB) {
	for _, k := range Kinds() {
		c, err := db.CountExpired(ctx, k)
		check := "expired rows of " + k.Table()
		switch {
		case err != nil:
			r.failed(check, err)
		case (c.Expired >= minExpired || c.Of == inSample) && c.Expired > c.Rows/4:
			r.bad(check, "run limiter sweep, and run it regularly", "%s", c)
		default:
			r.ok(check, "%s", c)
		}
	}
}
