package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

// safe is what pgx returns where it sent nothing.
type safe struct{ error }

func (safe) SafeToRetry() bool { return true }

// state is a server's error, as it comes out of a call that wrapped it.
func state(code string) error {
	return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "ERROR", Code: code, Message: "m", Detail: "Key (key)=(secret)"})
}

func TestClassOfErrors(t *testing.T) {
	t.Parallel()
	lost := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	cases := []struct {
		class, reading error // of a statement that writes, and of one that reads
		errs           []error
	}{
		{limiter.ErrInvalid, limiter.ErrInvalid, []error{
			state("22021"), state("22003"), state("22P02"), state("23514"), state("23505"), state("21000"), state("54000"),
		}},
		{limiter.ErrNotApplied, limiter.ErrNotApplied, []error{
			state("40001"), state("40P01"), state("55P03"), state("57014"), state("53300"), state("53100"), state("53200"),
			state("57P03"), state("57P05"), state("25006"), state("25P02"), state("26000"), state("42P05"), state("XX000"), state("58030"),
			&pgconn.PgError{Code: "0A000", Message: "gecachter Plan darf den Ergebnistyp nicht ändern", Routine: "RevalidateCachedQuery"},
			&pgconn.ConnectError{},
			&pgconn.PgError{Severity: "FATAL", Code: "57P05"}, &pgconn.PgError{Severity: "FATAL", Code: "57P03"},
			&pgconn.PgError{Severity: "FATAL", Code: "53300"},
			safe{io.EOF},
			pgx.ErrTxClosed,
			commitError{pgx.ErrTxCommitRollback},
		}},
		{limiter.ErrOutcomeUnknown, limiter.ErrNotApplied, []error{
			state("57P01"), state("57P02"), state("08006"), state("08003"), state("08P01"), state("40003"), state(""),
			&pgconn.PgError{Severity: "PANIC", Code: "53100"},
			&pgconn.PgError{Severity: "FATAL", Code: "58000"}, // of a pooler whose server has gone
			&pgconn.PgError{Severity: "PANIK", SeverityUnlocalized: "PANIC", Code: "53100"},
			io.EOF, io.ErrUnexpectedEOF, lost,
			commitError{safe{lost}},
			context.DeadlineExceeded,
		}},
		{limiter.ErrMisconfigured, limiter.ErrMisconfigured, []error{
			state("42P01"), state("42703"), state("42501"), state("42601"), state("28P01"), state("28000"), state("3D000"), state("3F000"), state("0A000"), state("42883"),
			errors.Join(state("22023"), &pgconn.ConnectError{}), // a setting in the DSN
		}},
	}
	s := &Store{options: options{schema: "public"}}
	for _, c := range cases {
		for _, err := range c.errs {
			for a, want := range map[access]error{write: c.class, read: c.reading} {
				got := s.interpretError(t.Context(), a, err)
				if !errors.Is(got, want) || !errors.Is(got, err) {
					t.Errorf("writing %t: %T %v is %v, want it to match %v", a, err, err, got, want)
				}
				for _, other := range []error{limiter.ErrInvalid, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrCanceled} {
					if other != want && errors.Is(got, other) {
						t.Errorf("writing %t: %v matches %v, too", a, got, other)
					}
				}
				if strings.Contains(got.Error(), "secret") {
					t.Errorf("%v tells the key", got)
				}
			}
		}
	}
	testenv.Must(t, s.interpretError(t.Context(), write, nil))
}

func TestErrorsOnCitus(t *testing.T) {
	t.Parallel()
	s := &Store{options: options{schema: "public", rendering: rendering{citus: true}}}
	for _, code := range []string{"XX000", "57014"} { // of a COMMIT of a worker that was lost, maybe
		testenv.ErrorIs(t, s.interpretError(t.Context(), write, state(code)), limiter.ErrOutcomeUnknown, code)
		testenv.ErrorIs(t, s.interpretError(t.Context(), read, state(code)), limiter.ErrNotApplied, code, "of a read")
	}
	testenv.Equal(t, s.refusedByCitus(), "", "advice on what the tables need")
	for err, outage := range map[error]bool{ // a worker is not the store
		state("08006"): false, state("XX000"): false, state("57P01"): false,
		errors.Join(state("55000"), &pgconn.ConnectError{}): true, // a database that allows no connections
		state("42P01"): true, io.EOF: true, &pgconn.ConnectError{}: true, &pgconn.PgError{Severity: "FATAL", Code: "57P01"}: true,
	} {
		testenv.Equal(t, s.isOutage(s.interpretError(t.Context(), write, err)), outage, err, "is an outage")
	}
}

func TestOutagesAndRetries(t *testing.T) {
	for codes, want := range map[string][2]bool{ // an outage, retried
		"25006 53300 57P01 57P03": {true, true}, "26000 40001 40P01 42P05 57P05": {false, true}, "08006 42P01": {true, false}, "53100 55P03 57014": {},
	} {
		for code := range strings.FieldsSeq(codes) {
			testenv.Equal(t, [2]bool{new(Store).isOutage(state(code)), isRetryable(state(code))}, want, code, "is an outage, is retried")
		}
	}
	testenv.Equal(t, isRetryable(safe{io.EOF}), true, "what was not sent is retried")
	testenv.Equal(t, new(Store).waitReason(), "", "the reason of a wait without a pool")
}

func TestClassAfterTheContextEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &Store{options: options{schema: "public"}}
	cases := []struct {
		a       access
		err     error
		unknown bool
	}{
		{write, safe{context.Canceled}, false}, // before sending
		{write, context.Canceled, true},        // in flight
		{read, context.Canceled, false},
		{write, state("57014"), false},
		{write, state("57P01"), true},
	}
	for _, c := range cases {
		err := s.interpretError(ctx, c.a, c.err)
		if !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) ||
			errors.Is(err, limiter.ErrOutcomeUnknown) != c.unknown || errors.Is(err, limiter.ErrNotApplied) {
			t.Errorf("writing %t: %v is %v; want canceled, outcome unknown %t", c.a, c.err, err, c.unknown)
		}
	}
	// What an operator must fix stays what it is.
	testenv.ErrorIs(t, s.interpretError(ctx, write, state("42P01")), limiter.ErrMisconfigured)
}

func TestAdviceOfErrors(t *testing.T) {
	t.Parallel()
	cases := []struct{ schema, code, want string }{
		{"public", "42P01", "migrations.Up(ctx, migrations.Postgres, db)"},
		{"public", "42P01", "or goose: see https://github.com/sqlimit/limiter/blob/main/docs/operations.md#create-the-tables"},
		{"limits", "42P01", "the tables in schema limits: run limiter migrate up --schema limits, or migrations.Up("},
		{"public", "28P01", "; see user and password in the DSN"},
		{"public", "3D000", "; create the database, or name another in the DSN"},
		{"limits", "42703", `migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema("limits"))`},
		{"limits", "3F000", `migrations.WithSchema("limits")`},
		{"limits", "42501", `GRANT SELECT, INSERT, UPDATE ON ` + strings.Join((&options{schema: "limits"}).tableNames(), ", ") + " TO"},
		{"limits", "42501", `GRANT USAGE ON SCHEMA "limits"`},
		{"public", "42P05", "postgres.WithQueryExecMode(pgx.QueryExecModeExec)"},
		{"public", "0A000", "; if Citus distributes the tables, pass postgres.WithCitus()"},
		{"public", "42P18", "pass postgres.WithCitus()"},
		{"public", "42601", "pass postgres.WithCitus()"},
		{"public", "26000", "default_query_exec_mode=exec"},
		{"public", "25006", "target_session_attrs=read-write"},
	}
	for _, c := range cases {
		t.Run(c.schema+" "+c.code, func(t *testing.T) {
			s := &Store{options: options{schema: c.schema}}
			testenv.Contains(t, s.interpretError(t.Context(), write, state(c.code)).Error(), c.want)
		})
	}
}

// A decision waits for its first key until the operation that held it has ended. Then it waits for its
// next key, a slot or a connection until its time ends, and nobody is answered, because no connection can be made. So
// the store has failed.
func TestAllTimesOutAfterABusyKey(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	op := func(key string, timeout time.Duration) limiter.Op {
		return limiter.Op{Kind: limiter.OpTake, Name: "test", Key: key, Policy: limiter.PerHour(5), Cost: 1, Timeout: timeout}
	}
	for where, reserved := range map[string]int{
		"its next key": singleStatements + 1, // the last one waits for one of the others to end
		"a slot":       singleStatements, "a connection": 0,
	} {
		for _, failed := range []error{nil, limiter.ErrNotApplied, limiter.ErrKeyBusy} { // the last one stands for others that are answered
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				config, err := pgxpool.ParseConfig("postgres://app@127.0.0.1/app?pool_max_conns=16")
				testenv.Must(t, err)
				config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				pool, err := pgxpool.NewWithConfig(ctx, config)
				testenv.Must(t, err)
				defer pool.Close()
				s, err := New(pool)
				testenv.Must(t, err)
				busy := op("a", timeout)
				held, err := batch.HoldAll(ctx, []*batch.Queue{s.tableOf(busy.Policy).queue}, []limiter.Op{busy}, true)
				testenv.Must(t, err)
				var all sync.WaitGroup
				for i := range reserved {
					reservation := op(fmt.Sprint("b", i), 10*timeout)
					reservation.MaxWait = time.Hour
					all.Go(func() { _, _ = s.Do(ctx, reservation) })
					synctest.Wait()
				}
				var decided atomic.Bool
				var decision sync.WaitGroup
				decision.Go(func() {
					defer decided.Store(true)
					_, err := s.DoAll(ctx, []limiter.Op{busy, op(fmt.Sprint("b", singleStatements), timeout)})
					if !errors.Is(err, limiter.ErrNotApplied) || limiter.StoreFailed(err) == errors.Is(failed, limiter.ErrKeyBusy) {
						t.Errorf("waiting for %s, its first key's error %v: %v", where, failed, err)
					}
				})
				synctest.Wait()
				<-time.After(timeout / 2)
				held.End(failed)
				for failed == limiter.ErrKeyBusy && !decided.Load() {
					<-time.After(timeout / 4)
					s.counters.Answered()
				}
				decision.Wait()
				stop()
				all.Wait()
				// The decision has given back its keys and its slot, whatever it waited for when its time
				// ended.
				queue := s.tableOf(busy.Policy).queue
				wait, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				again, err := batch.HoldAll(wait, []*batch.Queue{queue, queue}, []limiter.Op{busy, op(fmt.Sprint("b", singleStatements), timeout)}, true)
				if err != nil {
					t.Errorf("waiting for %s: the keys are still held: %v", where, err)
				}
				again.End(nil)
			})
		}
	}
}
