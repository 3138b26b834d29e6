package coalesce_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/coalesce"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// sender is a store in memory: statements take as long as a test says, and do what
// one take after another would have done.
type sender struct {
	takes time.Duration // of a statement
	dial  time.Duration // of a connection

	// before, if set, is called before a statement does anything; its error is the
	// statement's.
	before func(ctx context.Context, rows []*coalesce.Row) error
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

func (s *sender) Connect(ctx context.Context) (coalesce.Conn, error) {
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

func (c conn) Send(ctx context.Context, rows []*coalesce.Row) error {
	st := statement{begin: time.Now(), units: map[string]int64{}}
	for _, r := range rows {
		st.units[r.Op.Key] = r.Units
		st.keys = append(st.keys, r.Op.Key)
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
		return sqlstore.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
	}
	if c.before != nil {
		if err := c.before(ctx, rows); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil {
		c.rows = map[string]limiter.Row{}
	}
	now := time.Now().UnixNano()
	for _, r := range rows {
		r.Decided = true
		for range r.Units {
			next, state := r.Op.Apply(c.rows[r.Op.Key], now)
			if r.Granted == 0 || state.Took {
				r.State = state
			}
			if !state.Took {
				break
			}
			c.rows[r.Op.Key] = next
			r.Granted++
		}
	}
	return nil
}

// statements returns what was sent so far.
func (s *sender) statements() []statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]statement(nil), s.sent...)
}

const (
	ms      = time.Millisecond
	timeout = 250 * ms
)

var perHour = limiter.PerHour(100)

func take(key string, cost int64) limiter.Op {
	return limiter.Op{Kind: limiter.OpTake, Name: "l", Key: key, Policy: perHour, Cost: cost, Timeout: timeout}
}

func newQueue(s *sender) *coalesce.Queue {
	return coalesce.New(s, coalesce.Limits{Rows: 4, Shared: 2, Alone: 2, Crowd: 2, Time: new(sqlstore.Timekeeper)})
}

// answer is what a take returned.
type answer struct {
	state   limiter.State
	decided bool
	err     error
	after   time.Duration
}

// ask sends takes from goroutines of their own, in their order, each with its time
// limit as a store gives it.
func ask(ctx context.Context, q *coalesce.Queue, ops ...limiter.Op) (wait func() []answer) {
	answers := make([]answer, len(ops))
	begin := time.Now()
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() {
			limited, stop := new(sqlstore.Timekeeper).Limit(ctx, op.Timeout)
			defer stop()
			a := &answers[i]
			a.state, a.decided, a.err = q.Take(limited, op)
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
		if a.err != nil || !a.decided {
			t.Errorf("take %d: decided %v, %v", i, a.decided, a.err)
		}
		if a.state.Took {
			n++
		}
	}
	return n
}
