package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

var (
	errBusy         = &pgconn.PgError{Code: serializationFailure}
	errMayRetry     = fmt.Errorf("%w: %w", limiter.ErrNotApplied, errBusy)
	errUnknown      = fmt.Errorf("%w: %w", limiter.ErrOutcomeUnknown, errBusy)
	errMustNotRetry = fmt.Errorf("%w: down", limiter.ErrNotApplied)
	errNotSent      = fmt.Errorf("%w: %w", limiter.ErrNotApplied, &pgconn.PgError{Code: idleSession})
)

func TestRetryOfNotApplied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		errs []error // of one sending after another; none from then on
		want error
		sent int
	}{
		{"success", nil, nil, 1},
		{"not applied once", []error{errMayRetry}, nil, 2},
		{"not applied twice", []error{errMayRetry, errMayRetry}, nil, 3},
		{"never applied", []error{errMayRetry, errMayRetry, errMayRetry, errMayRetry}, errMayRetry, 3},
		{"not applied, for what does not pass so soon", []error{errMustNotRetry}, errMustNotRetry, 1},
		{"unknown", []error{errUnknown}, limiter.ErrOutcomeUnknown, 1},
		{"unknown after what was not applied", []error{errMayRetry, errUnknown}, limiter.ErrOutcomeUnknown, 2},
		{"both at once", []error{errors.Join(errMayRetry, limiter.ErrOutcomeUnknown)}, limiter.ErrOutcomeUnknown, 1},
		{"misconfigured", []error{limiter.ErrMisconfigured}, limiter.ErrMisconfigured, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRetrier()
				begin, sent := time.Now(), 0
				err := resent(t.Context(), time.Second, r, func(context.Context) (limiter.State, error) {
					if sent++; sent > len(c.errs) {
						return limiter.State{}, nil
					}
					return limiter.State{}, c.errs[sent-1]
				})
				if !errors.Is(err, c.want) || sent != c.sent {
					t.Errorf("sent %d times, at last %v; want %d times and %v", sent, err, c.sent, c.want)
				}
				pauses := sent - 1
				if took := int(time.Since(begin) / time.Millisecond); took < pauses*5 || took > pauses*25 {
					t.Errorf("it took %d ms with %d pauses", took, pauses)
				}
			})
		})
	}
}

func TestNoRetryWithoutTimeOrCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			timeout   time.Duration
			leaves    bool
			continues bool
			want      error
		}{
			"no time":                        {4 * time.Millisecond, false, false, errMayRetry},
			"the caller left":                {time.Second, true, false, limiter.ErrCanceled},
			"the caller left in a statement": {time.Second, true, true, limiter.ErrCanceled},
		} {
			caller, leave := context.WithCancel(t.Context())
			defer leave()
			r, sent := newRetrier(), 0
			err := resent(caller, c.timeout, r, func(ctx context.Context) (limiter.State, error) {
				sent++
				if c.continues {
					_ = opcontext.Begin(ctx, false, 0, 0)
				}
				if c.leaves {
					leave()
				}
				return limiter.State{}, errMayRetry
			})
			if sent != 1 || !errors.Is(err, c.want) || errors.Is(err, limiter.ErrCanceled) != c.leaves || c.leaves && errors.Is(err, limiter.ErrNotApplied) {
				t.Errorf("%s: sent %d times, %v", name, sent, err)
			}
		}
	})
}

// The server ended the session before it read the operation. Each connection of the pool may be such
// a session.
func TestRetryOfUnsent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open("postgres://app@127.0.0.1/app?pool_max_conns=5")
		testenv.Must(t, err)
		begin := time.Now()
		const conns = 5
		r := &s.retries
		for operation := range 1000 {
			sent, dead := 0, operation%(conns+2)
			err := resent(t.Context(), time.Second, r, func(context.Context) (limiter.State, error) {
				if sent++; sent <= dead {
					return limiter.State{}, errNotSent
				}
				return limiter.State{}, nil
			})
			if (err == nil) != (dead <= conns) || sent != min(dead, conns)+1 {
				t.Fatalf("operation %d: %d sessions had ended, and it was sent %d times, at last %v", operation, dead, sent, err)
			}
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A database at which everything fails must not get three times the load.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, sent := newRetrier(), 0
		const operations = 2000
		for range operations { // successes give no more retries
			testenv.Must(t, resent(t.Context(), time.Second, r, func(context.Context) (s limiter.State, err error) { return s, nil }))
		}
		for range operations {
			_ = resent(t.Context(), time.Second, r, func(context.Context) (limiter.State, error) {
				sent++
				return limiter.State{}, errMayRetry
			})
		}
		if again := sent - operations; again < operations/10 || again > operations/10+10 {
			t.Errorf("%d of %d were sent again", again, operations)
		}
	})
}

func newRetrier() *retrier { return &retrier{counted: new(atomic.Int64)} }

// resent calls send, and again as a store does.
func resent(caller context.Context, timeout time.Duration, r *retrier, send func(context.Context) (limiter.State, error)) error {
	ctx := new(opcontext.Deadlines).WithTimeout(caller, timeout)
	defer opcontext.Stop(ctx)
	s, err := send(ctx)
	_, err = retry(ctx, r, s, err, send)
	return err
}
