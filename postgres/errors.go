package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// SQLSTATEs that are treated apart from their class (PostgreSQL manual,
// appendix A).
const (
	serializationFailure = "40001"
	completionUnknown    = "40003"
	deadlockDetected     = "40P01"
	readOnlyTransaction  = "25006"
	insufficientRights   = "42501"
	undefinedColumn      = "42703"
	duplicateStatement   = "42P05"
	tooManyConnections   = "53300"
	diskFull             = "53100"
	queryCanceled        = "57014"
	idleSession          = "57P05"
	cannotConnectNow     = "57P03"
	lockNotAvailable     = "55P03"
	undefinedTable       = "42P01"
	indeterminateType    = "42P18"
	syntaxError          = "42601"
	undefinedSchema      = "3F000"
	undefinedStatement   = "26000"
	adminShutdown        = "57P01"
	crashShutdown        = "57P02"
)

// replanned is the server's routine that reports that a prepared statement has another meaning
// since a table was altered. The error has no SQLSTATE of its own, and its text is translated.
const replanned = "RevalidateCachedQuery"

// interpretError gives err its class and keeps the driver's error, so that callers need not know
// SQLSTATEs. The text of a server error contains no key; only its detail does.
func (s *Store) interpretError(ctx context.Context, a access, err error) error {
	if err == nil || opcontext.Classified(err) {
		return err
	}
	if s.boundsWaits && isLocked(err) {
		return opcontext.LockTimeout(ctx, err)
	}
	class, advice := s.classify(a, err)
	if ctx.Err() != nil && (errors.Is(class, limiter.ErrOutcomeUnknown) || errors.Is(class, limiter.ErrNotApplied)) {
		return opcontext.Interrupted(ctx, class, err)
	}
	return fmt.Errorf("%w: %w%s", class, err, advice)
}

// classify returns the class of err and, if an operator must act, what to do.
func (s *Store) classify(a access, err error) (class error, advice string) {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	connecting := errors.As(err, &connect)
	switch {
	case errors.As(err, &server):
		class, advice = s.classifyState(server)
	case connecting && refusedTLS(connect):
		class, advice = limiter.ErrMisconfigured, "; turn TLS on in the server, or off in the DSN: sslmode=disable"
	case connecting, pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxClosed), errors.Is(err, pgx.ErrTxCommitRollback):
		class = limiter.ErrNotApplied
	default:
		class = limiter.ErrOutcomeUnknown
	}
	if errors.Is(class, limiter.ErrOutcomeUnknown) && (connecting || a == read) {
		class = limiter.ErrNotApplied
	}
	if connecting && errors.Is(class, limiter.ErrInvalid) { // no statement was sent
		class, advice = limiter.ErrMisconfigured, "; see the settings in the DSN"
	}
	if connecting && s.config != nil && s.config.ConnString() == "" {
		advice += "; the DSN is empty: is DATABASE_URL set?"
	}
	return class, advice
}

// refusedTLS reports whether the server has no TLS although the DSN requires it. If the DSN does
// not require it, pgx connects without TLS.
func refusedTLS(e *pgconn.ConnectError) bool {
	if e.Config == nil || e.Config.TLSConfig == nil {
		return false
	}
	for _, f := range e.Config.Fallbacks {
		if f.TLSConfig == nil {
			return false
		}
	}
	return strings.Contains(e.Error(), "server refused TLS connection") // pgx has no name for it
}

// classifyState returns the class for an SQLSTATE. The server has not carried out a statement that
// it answers with an error. The exception is an error that ends the connection: the server sends
// the same one to an idle session and in mid-statement.
func (s *Store) classifyState(e *pgconn.PgError) (class error, advice string) {
	switch e.Code {
	case undefinedTable, undefinedColumn, undefinedSchema:
		return limiter.ErrMisconfigured, s.migrate()
	case insufficientRights:
		return limiter.ErrMisconfigured, fmt.Sprintf("; grant the role what it needs: "+
			`GRANT USAGE ON SCHEMA %[1]q TO role; GRANT SELECT, INSERT, UPDATE ON %[2]s TO role; GRANT SELECT ON %[1]q.limiter_overrides TO role; -- to sweep, also: GRANT DELETE ON %[2]s TO role; row-level security also needs a policy`,
			s.schema, strings.Join(s.tableNames(), ", "))
	case undefinedStatement, duplicateStatement:
		return limiter.ErrNotApplied, "; a pooler in transaction mode loses prepared statements: " +
			"use postgres.WithQueryExecMode(pgx.QueryExecModeExec) or default_query_exec_mode=exec in the DSN"
	case readOnlyTransaction:
		return limiter.ErrNotApplied, "; this server only reads: name the primary in the DSN, " +
			"or all servers and target_session_attrs=read-write"
	case indeterminateType, syntaxError:
		return limiter.ErrMisconfigured, s.refusedByCitus()
	case adminShutdown, crashShutdown, completionUnknown:
		return limiter.ErrOutcomeUnknown, ""
	}
	if len(e.Code) < 2 || s.citus && mayHaveCommitted(e) {
		return limiter.ErrOutcomeUnknown, ""
	}
	switch e.Code[:2] {
	case "08": // the connection; all that PgBouncer ever answers
		return limiter.ErrOutcomeUnknown, ""
	case "21", "22", "23", "54": // the statement's own data
		return limiter.ErrInvalid, ""
	case "28": // authentication
		return limiter.ErrMisconfigured, "; see user and password in the DSN"
	case "3D": // no such database
		return limiter.ErrMisconfigured, "; create the database, or name another in the DSN"
	case "42": // syntax and rights
		return limiter.ErrMisconfigured, ""
	case "0A":
		if e.Routine != replanned {
			return limiter.ErrMisconfigured, s.refusedByCitus()
		}
	}
	if ends(e) {
		return limiter.ErrOutcomeUnknown, ""
	}
	return limiter.ErrNotApplied, ""
}

// mayHaveCommitted reports whether a coordinator of Citus answers this error if it does not get the
// worker's answer to a COMMIT, or stops waiting for it. The worker may have committed.
func mayHaveCommitted(e *pgconn.PgError) bool {
	return strings.HasPrefix(e.Code, "XX") || e.Code == queryCanceled
}

// refusedByCitus returns advice on a statement that the server does not support.
func (s *Store) refusedByCitus() string {
	if s.citus {
		return ""
	}
	return "; if Citus distributes the tables, pass postgres.WithCitus()"
}

// ends reports whether an error ends its connection and may have come after a commit. A pooler that
// has lost its server reports such an error. The server sends some of its codes only to sessions
// without a statement in flight.
func ends(e *pgconn.PgError) bool {
	severity := severityOf(e)
	switch e.Code {
	case tooManyConnections, cannotConnectNow, idleSession:
		return severity == "PANIC"
	}
	return severity == "FATAL" || severity == "PANIC"
}

func severityOf(e *pgconn.PgError) string {
	if e.SeverityUnlocalized == "" { // before PostgreSQL 9.6, and of some poolers
		return e.Severity
	}
	return e.SeverityUnlocalized
}

// ofWorker reports whether a coordinator of Citus may pass on err from a worker: its own session
// goes on.
func ofWorker(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && severityOf(server) == "ERROR"
}

// migrate returns advice on how to create the tables.
func (s *Store) migrate() string {
	return fmt.Sprintf("; migration %d creates or upgrades the tables in schema %s: %s, or goose: "+
		"see https://github.com/sqlimit/limiter/blob/main/docs/operations.md#create-the-tables", schemaVersion, s.schema, s.up())
}

// up returns advice on how to migrate the store's schema.
func (s *Store) up() string {
	flag, with := "", ""
	if s.schema != pgschema.Default {
		flag, with = " --schema "+s.schema, fmt.Sprintf(", migrations.WithSchema(%q)", s.schema)
	}
	return fmt.Sprintf("run limiter migrate up%s, or migrations.Up(ctx, migrations.Postgres, db%s)", flag, with)
}

// unusable reports whether the connection that returned err must not be used again: it leads to a
// server that is read-only now, or a pooler mixed up its prepared statements.
func unusable(err error) bool {
	switch sqlState(err) {
	case readOnlyTransaction, undefinedStatement, duplicateStatement:
		return true
	}
	return false
}

// ended reports whether err says that the server ended the session. Except for [idleSession], that
// may have been in mid-statement.
func ended(err error) bool {
	switch sqlState(err) {
	case idleSession, adminShutdown:
		return true
	}
	return false
}

// isLocked reports whether a statement waited too long for a row lock.
func isLocked(err error) bool { return sqlState(err) == lockNotAvailable }

// timedOut reports whether a time limit ended a statement.
func timedOut(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// isOutage reports whether no operation can succeed at the moment. A failure to connect is an outage, whatever
// the server answers. It is no outage if the server rejected one statement because of others in flight, its
// time limit, or a full disk. On Citus, the failure of one worker is no outage, because the others may work.
func (s *Store) isOutage(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	state := sqlState(err)
	if s.citus && ofWorker(err) && !errors.Is(err, limiter.ErrMisconfigured) {
		return false
	}
	switch state {
	case queryCanceled, diskFull, undefinedStatement, duplicateStatement, idleSession:
		return false
	}
	return !strings.HasPrefix(state, "40") && !strings.HasPrefix(state, "55") && !strings.HasPrefix(state, "0A")
}

// isRetryable reports whether an operation that was not applied may succeed if the store retries it. That
// is so if the server is starting, has no free connection or ended the session, if the connection
// was closed, or if another transaction was in the way. It is not so after a lock timeout, because
// the caller has waited long enough.
func isRetryable(err error) bool {
	switch sqlState(err) {
	case serializationFailure, deadlockDetected, readOnlyTransaction, undefinedStatement, duplicateStatement,
		tooManyConnections, cannotConnectNow, idleSession, adminShutdown:
		return true
	case "":
		var connect *pgconn.ConnectError
		return errors.As(err, &connect) || pgconn.SafeToRetry(err)
	}
	return false
}

// dsnReason returns what is wrong with a DSN and how to write one. It never returns the DSN, which
// may contain a password: pgx masks only what it recognizes as one. If the DSN has no known form,
// pgx's own reason may quote any part of it.
func dsnReason(err error) string {
	const form = "; write postgres://user:password@host:5432/database" //nolint:gosec // a form, not a password
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return "it cannot be parsed" + form
	}
	text, inner := parse.Error(), ""
	if cause := parse.Unwrap(); cause != nil {
		inner = " (" + cause.Error() + ")"
		text = strings.TrimSuffix(text, inner)
	}
	reason := text[strings.LastIndex(text, "`: ")+len("`: "):]
	switch {
	case strings.HasPrefix(reason, "failed to parse"):
		return reason + form
	case reason == "invalid port" && strings.Contains(parse.ConnString, "://"):
		return reason + "; characters such as # / @ : in a password must be percent-encoded"
	}
	return reason + inner
}

func sqlState(err error) string {
	if err == nil {
		return ""
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}
