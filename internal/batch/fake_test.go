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
	// undecided, if set, says which calls a statement cannot decide.
	undecided func(groups []*batch.Group, c *batch.Call) bool
	// connect, if set, gives the error of a connection.
	connect func() error

	mu    sync.Mutex
	rows  map[string]limiter.Row
	sent  []statement
	alive int // connections that were not given back
}

// statement is what was sent, and when.
type statement struct {
	begin, end time.Time
	units      map[string]int64
	keys       []string
}

func (s *sender) Connect(ctx context.Context) (batch.Conn, error) {
	if s.dial > 0 {
		select {
		case <-time.After(s.dial):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.connect != nil {
		if err := s.connect(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive++
	return conn{s}, nil
}

type conn struct{ *sender }

func (c conn) Fresh() bool { return c.dial > 0 }

func (c conn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive--
}

func (c conn) Send(ctx context.Context, groups []*batch.Group) error {
	st := statement{begin: time.Now(), units: map[string]int64{}}
	for _, g := range groups {
		st.units[g.Op().Key] = int64(len(g.Calls))
		st.keys = append(st.keys, g.Op().Key)
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		st.end = time.Now()
		c.sent = append(c.sent, st)
	}()
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
		return opcontext.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
	}
	if c.before != nil {
		if err := c.before(ctx, groups); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil {
		c.rows = map[string]limiter.Row{}
	}
	now := time.Now().UnixNano()
	for _, g := range groups {
		for i, call := range g.Calls {
			if call.Undecided = c.undecided != nil && c.undecided(groups, call); call.Undecided {
				continue
			}
			op := call.Op
			if len(groups) > 1 {
				op = *g.Op() // as in SQL: the calls are units of one operation
			}
			next, state := op.Apply(c.rows[g.Op().Key], now)
			if g.Equal && i > 0 && !state.Took && g.Calls[0].State().Took {
				break // as in SQL: the next statement decides whether it is refused
			}
			c.rows[g.Op().Key] = next
			call.Answer(state)
		}
	}
	return nil
}

// merges reports whether an operation shares statements: a take that books nothing ahead.
func merges(op *limiter.Op) bool { return op.Kind == limiter.OpTake && op.MaxWait == 0 }

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

func newQueue(s *sender) *batch.Queue {
	return batch.New(s, batch.Config{Keys: 4, Shared: 2, Single: 2, HotKey: 2, GiveBacks: 3, Merges: merges, Deadlines: new(opcontext.Deadlines)})
}

// answer is what a take returned.
type answer struct {
	state limiter.State
	err   error
	after time.Duration
}

// ask sends takes from goroutines of their own, in their order, each with its time
// limit as a store gives it.
func ask(ctx context.Context, q *batch.Queue, ops ...limiter.Op) (wait func() []answer) {
	answers := make([]answer, len(ops))
	begin := time.Now()
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() {
			limited, stop := new(opcontext.Deadlines).WithTimeout(ctx, op.Timeout)
			defer stop()
			a := &answers[i]
			a.state, a.err = q.Do(limited, op)
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
