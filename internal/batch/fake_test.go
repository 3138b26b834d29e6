package batch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// sender is a store in memory. Its statements take as long as a test says, and carry out one
// take after another.
type sender struct {
	takes time.Duration // of a statement
	dial  time.Duration // of a connection

	// before, if set, is called before a statement does anything; its error is the
	// statement's.
	before func(ctx context.Context, groups []*batch.Group) error
	// after, if set, is called after the statement; its error is the statement's.
	after func(ctx context.Context, groups []*batch.Group) error
	// undecided, if set, says which calls a statement cannot decide.
	undecided func(groups []*batch.Group, c *batch.Call) bool
	// connect, if set, gives the error of a connection.
	connect func() error

	mu    sync.Mutex
	rows  map[string]limiter.Row
	sent  []statement
	alive int // connections that were not given back

	queues   []*queue
	counters batch.Counters // of all queues
}

// statement is what was sent, and when.
type statement struct {
	begin, end time.Time
	units      map[string]int64
	keys       []string
}

// send is [batch.Config].Send.
func (s *sender) send(ctx context.Context, st *batch.Statement) (err error) {
	defer st.Recover(&err)
	if s.dial > 0 {
		select {
		case <-time.After(s.dial):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.connect != nil {
		if err := s.connect(); err != nil {
			return err
		}
	}
	s.connected(1)
	defer s.connected(-1)
	if ctx, err = st.Begin(ctx, s.dial > 0); err != nil {
		return err
	}
	return s.carryOut(ctx, st.Groups)
}

func (s *sender) connected(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive += n
}

func (s *sender) carryOut(ctx context.Context, groups []*batch.Group) error {
	st := statement{begin: time.Now(), units: map[string]int64{}}
	for _, g := range groups {
		st.units[g.Op().Key] = int64(len(g.Calls))
		st.keys = append(st.keys, g.Op().Key)
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.end = time.Now()
		s.sent = append(s.sent, st)
	}()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return opcontext.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
	}
	if s.before != nil {
		if err := s.before(ctx, groups); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		s.rows = map[string]limiter.Row{}
	}
	now := time.Now().UnixNano()
	for _, g := range groups {
		for i, call := range g.Calls {
			if call.ReadFirst = s.undecided != nil && s.undecided(groups, call); call.ReadFirst {
				continue
			}
			op := call.Op
			if len(groups) > 1 {
				op = *g.Op() // as in SQL: the calls are units of one operation
			}
			next, state := op.Apply(s.rows[g.Op().Key], now)
			if g.Equal && i > 0 && !state.Took && g.Calls[0].State().Took {
				break // as in SQL: the next statement decides whether it is refused
			}
			s.rows[g.Op().Key] = next
			call.Decide(state)
		}
	}
	if s.after != nil {
		return s.after(ctx, groups)
	}
	return nil
}

// merges reports whether an operation shares statements: a take that books nothing ahead.
func merges(op *limiter.Op) bool { return op.Kind == limiter.OpTake && op.MaxWait == 0 }

// queue is a Queue whose statements a sender sends.
type queue struct {
	*batch.Queue
	sender    *sender
	deadlines *opcontext.Deadlines
	mu        sync.Mutex
	holds     map[string]*batch.Hold
}

func open(s *sender, config batch.Config) *queue {
	config.Send = s.send
	q := &queue{Queue: batch.New(config), sender: s, deadlines: config.Deadlines, holds: map[string]*batch.Hold{}}
	s.queues = append(s.queues, q)
	return q
}

// wantIdle checks that nothing is left behind.
func (s *sender) wantIdle(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if s.alive != 0 {
		t.Errorf("%d connections were not given back", s.alive)
	}
	for _, q := range s.queues {
		if shared, single, slow := q.InFlight(); shared != 0 || single != 0 || slow != 0 {
			t.Errorf("%d shared, %d single and %d slow statements still count as in flight", shared, single, slow)
		}
	}
}

// Do carries out op as a store does, within its time limit.
func (q *queue) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	ctx = q.deadlines.WithTimeout(ctx, op.Timeout)
	defer opcontext.Stop(ctx)
	st, state, err := q.Enter(ctx, &op)
	if st == nil {
		return state, err
	}
	return st.End(q.sender.send(ctx, st))
}

// Hold waits for the key of op, which it has until Release is called.
func (q *queue) Hold(ctx context.Context, op *limiter.Op) (waited bool, err error) {
	ctx = q.deadlines.WithTimeout(ctx, op.Timeout)
	defer opcontext.Stop(ctx)
	h, err := batch.HoldAll(ctx, []*batch.Queue{q.Queue}, []limiter.Op{*op}, true)
	if err != nil {
		h.End(false, err)
		return h.Waited(), err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holds[op.Key] = h
	return h.Waited(), h.Begin(ctx, false, 0)
}

// Release ends a Hold.
func (q *queue) Release(op *limiter.Op, answered bool) {
	q.mu.Lock()
	h := q.holds[op.Key]
	delete(q.holds, op.Key)
	q.mu.Unlock()
	h.End(answered, nil)
}

// statements returns what was sent so far.
func (s *sender) statements() []statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]statement(nil), s.sent...)
}

// units returns of how many operations on a key each statement was so far.
func (s *sender) units(key string) (units []int64) {
	for _, st := range s.statements() {
		units = append(units, st.units[key])
	}
	return units
}

const (
	ms      = time.Millisecond
	timeout = 250 * ms
)

var perHour = limiter.PerHour(100)

func take(key string, cost int64) limiter.Op {
	return limiter.Op{Kind: limiter.OpTake, Name: "l", Key: key, Policy: perHour, Cost: cost, Timeout: timeout}
}

func newQueue(s *sender) *queue {
	return open(s, batch.Config{
		Keys: 4, Shared: 2, Single: 2, HotKey: 2, GiveBacks: 3, Merges: merges,
		Deadlines: new(opcontext.Deadlines), Counters: &s.counters,
	})
}

// answer is what a take returned.
type answer struct {
	state limiter.State
	err   error
	after time.Duration
}

// ask sends takes from goroutines of their own, in their order, each with its time
// limit as a store gives it.
func ask(ctx context.Context, q *queue, ops ...limiter.Op) (wait func() []answer) {
	answers := make([]answer, len(ops))
	begin := time.Now()
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() {
			a := &answers[i]
			a.state, a.err = q.Do(ctx, op)
			a.after = time.Since(begin)
		})
		synctest.Wait()
	}
	return func() []answer {
		all.Wait()
		return answers
	}
}

func took(t *testing.T, answers []answer) (n int) {
	t.Helper()
	for i, a := range answers {
		if a.err != nil {
			t.Errorf("take %d: %v", i, a.err)
		}
		if a.state.Took {
			n++
		}
	}
	return n
}
