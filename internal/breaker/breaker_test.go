package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/breaker"
	"github.com/sqlimit/limiter/internal/testenv"
)

const ms = time.Millisecond

// errKeyBusy is the error of an operation that timed out in its key's queue.
var errKeyBusy = fmt.Errorf("%w: %w", limiter.ErrKeyBusy, limiter.ErrNotApplied)

func opOf(key string) *limiter.Op { return &limiter.Op{Name: "name", Key: key} }

// through is throughAll for one key.
func through(b *breaker.Breaker, key string, err error) bool { return throughAll(b, err, opOf(key)) }

// opened is a Breaker that several keys have failed at.
func opened(err error) *breaker.Breaker {
	b := new(breaker.Breaker)
	for i := range 5 {
		through(b, fmt.Sprint(i), err)
	}
	return b
}

func TestOpensAfterFiveFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			errs []error
			open bool
		}{
			{"4 failures", []error{limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrNotApplied, limiter.ErrNotApplied}, false},
			{"5 failures", []error{limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrNotApplied, limiter.ErrNotApplied, limiter.ErrMisconfigured}, true},
			{"an answer in between", []error{limiter.ErrNotApplied, limiter.ErrNotApplied, limiter.ErrNotApplied, nil, limiter.ErrNotApplied, limiter.ErrNotApplied}, false},
			{
				"callers who left, bad input and what is not known",
				[]error{limiter.ErrCanceled, fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown), limiter.ErrInvalid, errors.ErrUnsupported, limiter.ErrCanceled, limiter.ErrInvalid},
				false,
			},
			{
				"operations that timed out in their key's queue",
				[]error{errKeyBusy, errKeyBusy, errKeyBusy, errKeyBusy, errKeyBusy, errKeyBusy},
				false,
			},
			{
				"callers who left in between",
				[]error{limiter.ErrNotApplied, limiter.ErrNotApplied, limiter.ErrCanceled, limiter.ErrNotApplied, limiter.ErrCanceled, limiter.ErrNotApplied, limiter.ErrNotApplied},
				true,
			},
		} {
			for _, timeout := range []time.Duration{0, 1, 250 * ms, math.MaxInt64 - time.Second, math.MaxInt64} {
				b := new(breaker.Breaker)
				for i, err := range c.errs {
					if !throughAll(b, err, within(timeout, i)) {
						t.Errorf("%s, time limit %v: operation %d was not let through", c.name, timeout, i)
					}
				}
				testenv.Equal(t, !through(b, "k", nil), c.open, c.name, "is open with the time limit", timeout)
			}
		}
	})
}

func TestProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := opened(limiter.ErrNotApplied)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var probes []time.Duration
		for range 4000 {
			<-time.After(ms)
			var under []breaker.Pass // way at a time
			for range 3 {
				if pass, refused := b.Enter(ctx, opOf("k")); refused == nil {
					under = append(under, pass)
					probes = append(probes, time.Since(begin))
				}
			}
			for _, pass := range under {
				pass.Leave(limiter.ErrOutcomeUnknown, opOf("k"))
			}
		}
		want := []time.Duration{50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 2550 * ms, 3550 * ms}
		testenv.Equal(t, fmt.Sprint(probes), fmt.Sprint(want), "let through after")
	})
}

func TestLoneCallerOfAHungDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := opened(limiter.ErrNotApplied)
		const hangs = 3 * time.Second
		var sent, kept int
		for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(300 * ms) {
			pass, refused := b.Enter(t.Context(), opOf("k"))
			if refused != nil {
				kept++
				continue
			}
			sent++
			<-time.After(hangs)
			pass.Leave(limiter.ErrNotApplied, opOf("k"))
		}
		if sent < 10 || kept < 2*sent {
			t.Errorf("of a minute's requests %d waited for the database, and %d were kept from it; want at least twice as many", sent, kept)
		}
	})
}

func TestClosesAtAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := opened(limiter.ErrNotApplied)
		b.IsOutage = func(err error) bool { return !strings.Contains(err.Error(), "row") }
		for _, answer := range []error{nil, fmt.Errorf("%w: the row is locked", limiter.ErrNotApplied)} {
			<-time.After(time.Second)
			if !through(b, "k", answer) {
				t.Fatal("nothing was let through after a second")
			}
			for i := range 20 {
				if !through(b, fmt.Sprint(i), nil) {
					t.Fatalf("%v: it is still open", answer)
				}
			}
			for i := range 5 {
				through(b, fmt.Sprint(i), limiter.ErrNotApplied)
			}
			if through(b, "k", nil) {
				t.Fatalf("%v: it does not open any more", answer)
			}
		}
	})
}

// Many may share a statement, and its error: that is one failure.
func TestFailuresTogetherCountOnce(t *testing.T) {
	t.Parallel()
	b := new(breaker.Breaker)
	for n := range 5 {
		if !through(b, "k", nil) {
			t.Fatalf("open after %d failures", n)
		}
		for range n { // so many in a row so far, which the answer above has ended
			through(b, "k", limiter.ErrNotApplied)
		}
		var ops []*limiter.Op
		var passes []breaker.Pass
		for i := range 64 {
			op := opOf(fmt.Sprint(i))
			pass, err := b.Enter(t.Context(), op)
			testenv.Must(t, err)
			ops, passes = append(ops, op), append(passes, pass)
		}
		for i, pass := range passes {
			pass.Leave(limiter.ErrOutcomeUnknown, ops[i])
		}
		op := opOf("another")
		pass, err := b.Enter(t.Context(), op)
		testenv.Equal(t, err != nil, n == 4, "is open after", n, "failures and one of 64 operations")
		if err == nil {
			pass.Leave(nil, op)
		}
	}
}

// Otherwise a locked row would block every key.
func TestOneKeyOpensForThatKeyAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker.Breaker)
		for range 9 {
			through(b, "locked", limiter.ErrOutcomeUnknown)
		}
		if through(b, "locked", nil) {
			t.Error("it is not open for its key")
		}
		another := opOf("another")
		pass, err := b.Enter(t.Context(), another)
		if err != nil {
			t.Fatalf("it is open for other keys: %v", err)
		}
		pass.Leave(limiter.ErrOutcomeUnknown, another)
		if through(b, "third", nil) {
			t.Error("it is not open for all when another key has failed as well")
		}
	})
}

func TestSentBeforeTheLastAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker.Breaker)
		var slow []*limiter.Op
		var passes []breaker.Pass
		for i := range 5 { // each is the next failure in a row, but for the answer that comes before it ends
			op := opOf(fmt.Sprint("slow ", i))
			pass, err := b.Enter(t.Context(), op)
			testenv.Must(t, err)
			slow, passes = append(slow, op), append(passes, pass)
			through(b, fmt.Sprint(i), limiter.ErrNotApplied)
		}
		<-time.After(time.Second)
		if !through(b, "k", nil) {
			t.Fatal("nothing was let through after a second")
		}
		for i, pass := range passes {
			pass.Leave(limiter.ErrOutcomeUnknown, slow[i])
		}
		if !through(b, "k", nil) {
			t.Error("operations of before have opened it again")
		}
	})
}

func TestErrorOfAnOpenBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for cause, want := range map[error]error{
			limiter.ErrNotApplied:     limiter.ErrNotApplied,
			limiter.ErrOutcomeUnknown: limiter.ErrNotApplied, // this one was not sent
			limiter.ErrMisconfigured:  limiter.ErrMisconfigured,
		} {
			_, err := opened(fmt.Errorf("%w: the reason", cause)).Enter(t.Context(), opOf("k"))
			if !errors.Is(err, want) || errors.Is(err, limiter.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "the reason") {
				t.Errorf("after %v: %v", cause, err)
			}
		}
	})
}

func TestStats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := new(breaker.Breaker)
		want := func(open bool, openings int64) {
			t.Helper()
			if o, n := b.Stats(); o != open || n != openings {
				t.Errorf("open %v, opened %d times; want %v, %d", o, n, open, openings)
			}
		}
		want(false, 0)
		for round := range int64(3) {
			for range 5 {
				want(false, round)
				through(b, "k", limiter.ErrNotApplied)
			}
			want(true, round+1)
			<-time.After(50 * ms)
			through(b, "k", limiter.ErrNotApplied) // a probe that fails opens it no second time
			want(true, round+1)
			<-time.After(time.Second)
			through(b, "k", nil)
			want(false, round+1)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
