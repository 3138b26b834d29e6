package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in runs a test in a synctest bubble, and checks that it leaves nothing behind.
func in(t *testing.T, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{takes: 10 * ms}
		test(t, s, open(s, batch.Config{Keys: 4, Shared: 2, Single: 2, HotKey: 2, GiveBacks: 3, Merges: merges}))
		s.wantIdle(t)
	})
}

// sub runs a subtest as in does.
func sub(t *testing.T, name string, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { in(t, test) })
}

// apart runs a subtest as in does, on a queue of one statement of each kind at a time.
func apart(t *testing.T, name string, keys, hotKey int, test func(t *testing.T, s *sender, q *queue)) {
	t.Helper()
	sub(t, name, func(t *testing.T, s *sender, _ *queue) {
		test(t, s, open(s, batch.Config{Keys: keys, Shared: 1, Single: 1, HotKey: hotKey, Merges: merges}))
	})
}

// queue is a Queue whose statements a sender sends.
type queue struct {
	*batch.Queue
	config batch.Config
	sender *sender
}

func open(s *sender, config batch.Config) *queue {
	s.merges = config.Merges
	config.Send, config.Deadlines, config.Counters = s.send, new(opcontext.Deadlines), &s.counters
	q := &queue{Queue: batch.New(config), config: config, sender: s}
	s.queues = append(s.queues, q)
	return q
}

// limited returns a context with a time limit, as a store makes it.
func limited(ctx context.Context, t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx = new(opcontext.Deadlines).WithTimeout(ctx, limit)
	t.Cleanup(func() { opcontext.Stop(ctx) })
	return ctx
}

// Do carries out op as a store does, within its time limit.
func (q *queue) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	ctx = q.config.Deadlines.WithTimeout(ctx, op.Timeout)
	defer opcontext.Stop(ctx)
	st, state, err := q.Enter(ctx, &op)
	if st == nil {
		return state, err
	}
	return st.End(q.sender.send(ctx, st))
}

const (
	ms      = time.Millisecond
	timeout = 250 * ms
)

var perHour = limiter.PerHour(100)

func take(key string, cost int64) limiter.Op { return of(limiter.OpTake, key, cost) }

func of(kind limiter.OpKind, key string, cost int64) limiter.Op {
	return limiter.Op{Kind: kind, Name: "l", Key: key, Policy: perHour, Cost: cost, Timeout: timeout}
}

// takes returns a take of 1 for each of the keys.
func takes(keys string) (ops []limiter.Op) {
	for key := range strings.FieldsSeq(keys) {
		ops = append(ops, take(key, 1))
	}
	return ops
}

// within returns a take of 1 with another time limit.
func within(limit time.Duration, key string) limiter.Op {
	op := take(key, 1)
	op.Timeout = limit
	return op
}

// booking returns a take that may book ahead, so that it shares no statement with other keys.
func booking(key string) limiter.Op {
	op := take(key, 1)
	op.MaxWait = time.Hour
	return op
}

// answer is what an operation returned.
type answer struct {
	state limiter.State
	err   error
	after time.Duration
}

// classes are the names of the errors that tests look for.
var classes = []struct {
	name string
	is   func(err error) bool
}{
	{"canceled", is(limiter.ErrCanceled)},
	{"unknown", is(limiter.ErrOutcomeUnknown)},
	{"not applied", is(limiter.ErrNotApplied)},
	{"invalid", is(limiter.ErrInvalid)},
	{"busy", is(limiter.ErrKeyBusy)},
	{"row locked", func(err error) bool { return errors.Is(err, errRow) || errors.Is(err, batch.ErrRowLocked) }},
	{"failed fast", batch.FailedFast},
}

func is(target error) func(err error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// class returns the names of an error's classes, or its text if it has none.
func class(err error) string {
	var names []string
	for _, c := range classes {
		if c.is(err) {
			names = append(names, c.name)
		}
	}
	if err != nil && names == nil {
		return err.Error()
	}
	return strings.Join(names, "+")
}

// wantError checks that an error has these classes, and no others.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	testenv.Equal(t, class(err), want, "the error is", err)
}

// asked is operations that were sent from goroutines of their own.
type asked struct {
	answers []answer
	all     sync.WaitGroup
	read    bool
}

// ask sends operations in their order, each with its time limit as a store gives it.
func ask(ctx context.Context, q *queue, ops ...limiter.Op) *asked {
	a := &asked{answers: make([]answer, len(ops))}
	q.sender.asked = append(q.sender.asked, a)
	begin := time.Now()
	for i, op := range ops {
		a.all.Go(func() {
			a.answers[i].state, a.answers[i].err = q.Do(ctx, op)
			a.answers[i].after = time.Since(begin)
		})
		synctest.Wait()
	}
	return a
}

func (a *asked) wait() []answer {
	a.read = true
	a.all.Wait()
	return a.answers
}

// want checks the outcomes: "2 took, refused, not applied" for four operations. With " after 10ms" behind an outcome
// it also checks when the answer came.
func (a *asked) want(t *testing.T, want string) {
	t.Helper()
	var texts []string
	for _, a := range a.wait() {
		text := class(a.err)
		switch {
		case a.err == nil && a.state.Took:
			text = "took"
		case a.err == nil:
			text = "refused"
		}
		if strings.Contains(want, " after ") {
			text = fmt.Sprint(text, " after ", a.after)
		}
		texts = append(texts, text)
	}
	var runs []string
	for len(texts) > 0 {
		n := 1
		for n < len(texts) && texts[n] == texts[0] {
			n++
		}
		runs = append(runs, strings.TrimPrefix(fmt.Sprint(n, " ", texts[0]), "1 "))
		texts = texts[n:]
	}
	testenv.Equal(t, strings.Join(runs, ", "), want, "the operations")
}

// holding is a Hold for which a goroutine waits.
type holding struct {
	*batch.Hold
	err error
	all sync.WaitGroup
}

// hold waits for the keys of ops, within the time limit of the first one.
func hold(ctx context.Context, q *queue, ops ...limiter.Op) *holding {
	h := new(holding)
	h.all.Go(func() {
		limited := q.config.Deadlines.WithTimeout(ctx, ops[0].Timeout)
		defer opcontext.Stop(limited)
		queues := slices.Repeat([]*batch.Queue{q.Queue}, len(ops))
		if h.Hold, h.err = batch.HoldAll(limited, queues, ops, true); h.err != nil {
			h.End(limiter.ErrNotApplied)
			return
		}
		h.err = h.Begin(limited, false, 0)
	})
	synctest.Wait()
	return h
}

// want checks the classes of the error, "" if it has its keys.
func (h *holding) want(t *testing.T, class string) {
	t.Helper()
	h.all.Wait()
	wantError(t, h.err, class)
}

// release waits for the keys, and releases them.
func (h *holding) release(t *testing.T) {
	t.Helper()
	if h.all.Wait(); h.err != nil {
		t.Fatalf("the Hold failed: %v", h.err)
	}
	h.End(nil)
}

// lock calls Lock in a goroutine, within the time limit of op.
func lock(t *testing.T, q *queue, op limiter.Op) (ended <-chan error) {
	t.Helper()
	errs := make(chan error, 1)
	go func() { errs <- q.Lock(limited(t.Context(), t, op.Timeout), &op) }()
	synctest.Wait()
	return errs
}
