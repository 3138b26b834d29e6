package batch_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// sender is a store in memory. Its statements take as long as a test says, and carry out one
// take after another.
type sender struct {
	takes time.Duration // of a statement
	dial  time.Duration // of a connection

	// before, if set, is called before a statement does anything; its error is the statement's.
	before func(ctx context.Context, groups []*batch.Group) error
	// after, if set, is called after the statement; its error is the statement's.
	after func(ctx context.Context, groups []*batch.Group) error
	// undecided, if set, says which calls a statement cannot decide.
	undecided func(groups []*batch.Group, c *batch.Call) bool
	// connect, if set, gives the error of a connection.
	connect func(ctx context.Context) error
	// age, if set, is how long ago the row of a key was written.
	age func(key string) time.Duration

	mu    sync.Mutex
	rows  map[string]limiter.Row
	sent  []statement
	asked []*asked

	merges   func(*limiter.Op) bool // of the queue that was opened last
	queues   []*queue
	counters batch.Counters // of all queues
	wrong    []string       // the groups that break a promise, and panics of the queue
	unlock   chan struct{}  // see [slowly]
	free     string         // likewise
}

// statement is what was sent, and when.
type statement struct {
	begin, end time.Time
	text       string // a*2+b for two operations on a and one on b
}

// send is [batch.Config].Send.
func (s *sender) send(ctx context.Context, st *batch.Statement) (err error) {
	defer func() { // Recover makes an error of a panic; those of tests are "broken"
		if err != nil && strings.Contains(err.Error(), "panic: ") && !strings.Contains(err.Error(), "broken") {
			s.mu.Lock()
			s.wrong = append(s.wrong, err.Error())
			s.mu.Unlock()
		}
	}()
	defer st.Recover(&err)
	if s.dial > 0 {
		err = pause(ctx, s.dial, limiter.ErrNotApplied)
	}
	if err == nil && s.connect != nil {
		err = s.connect(ctx)
	}
	if err == nil {
		ctx, err = st.Begin(ctx, s.dial > 0)
	}
	if err != nil {
		return err
	}
	err = s.carryOut(ctx, st.Groups)
	if s.age != nil && st.NeedsWritten() {
		st.Written = time.Now().Add(-s.age(st.Groups[0].Op().Key))
	}
	return err
}

// pause waits for d. If ctx ends first, the error has this class.
func pause(ctx context.Context, d time.Duration, class error) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return opcontext.Interrupted(ctx, class, nil)
	}
}

// check records the groups that break a promise of [batch.Group].
func (s *sender) check(groups []*batch.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range groups {
		first, equal := g.Calls[0], true
		for _, c := range g.Calls {
			op := c.Op
			op.ID, op.Timeout = first.Op.ID, first.Op.Timeout
			equal = equal && !c.LocksOnly && op == first.Op && (s.merges == nil || s.merges(&op))
			if c.LocksOnly != first.LocksOnly || batch.GivesBack(&op) != batch.GivesBack(&first.Op) {
				s.wrong = append(s.wrong, "a group of several kinds")
			}
		}
		if shared := len(groups) > 1 && s.merges != nil; g.Equal != equal || shared && !equal {
			s.wrong = append(s.wrong, fmt.Sprintf("%d operations like %+v: Equal is %v", len(g.Calls), first.Op, g.Equal))
		}
	}
}

func (s *sender) carryOut(ctx context.Context, groups []*batch.Group) error {
	s.check(groups)
	st := statement{begin: time.Now()}
	for _, g := range groups {
		st.text += "+" + g.Op().Key
		if n := len(g.Calls); n > 1 {
			st.text += fmt.Sprint("*", n)
		}
	}
	st.text = strings.TrimPrefix(st.text, "+")
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.end = time.Now()
		s.sent = append(s.sent, st)
	}()
	if err := pause(ctx, s.takes, limiter.ErrOutcomeUnknown); err != nil {
		return err
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
		for _, call := range g.Calls {
			if call.ReadFirst = s.undecided != nil && s.undecided(groups, call); call.ReadFirst {
				continue
			}
			op := call.Op
			if len(groups) > 1 && s.merges != nil {
				op = *g.Op() // as in SQL: the calls are units of one operation
			}
			next, state := op.Apply(s.rows[g.Op().Key], now)
			s.rows[g.Op().Key] = next
			call.Decide(state)
		}
	}
	if s.after != nil {
		return s.after(ctx, groups)
	}
	return nil
}

// text returns what was sent so far, by the times at which the statements began. Those of one instant are sorted.
// "x, a*2+b" is one take of x, and then a statement for two of a and one of b.
func (s *sender) text() string {
	all := s.statements()
	slices.SortFunc(all, func(a, b statement) int { return cmp.Or(a.begin.Compare(b.begin), cmp.Compare(a.text, b.text)) })
	var texts []string
	for _, st := range all {
		texts = append(texts, st.text)
	}
	return strings.Join(texts, ", ")
}

// wantSent checks what was sent so far.
func (s *sender) wantSent(t *testing.T, want string) {
	t.Helper()
	testenv.Equal(t, fmt.Sprintf("%q", s.text()), fmt.Sprintf("%q", want), "what was sent")
}

// statements returns what was sent so far.
func (s *sender) statements() []statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// wantIdle checks that nothing is left behind, and that callers whose answers the test did not read were granted.
func (s *sender) wantIdle(t *testing.T) {
	t.Helper()
	for _, asked := range s.asked {
		asked.all.Wait()
		for i, a := range asked.answers {
			if !asked.read && !a.state.Took {
				t.Errorf("operation %d: %+v, %v after %v, want it granted", i, a.state, a.err, a.after)
			}
		}
	}
	<-time.After(time.Second) // for statements whose callers have left
	synctest.Wait()
	stats := s.counters.Stats()
	testenv.Equal(t, [2]int{int(stats.Queued), int(stats.Statements)}, [2]int{0, len(s.sent)}, "operations queued, and statements sent")
	testenv.Equal(t, s.wrong, nil, "what the statements had wrong")
	for _, q := range s.queues {
		if all, shared, single, slow := q.InFlight(); all|shared|single|slow != 0 {
			t.Errorf("%d statements still count as in flight: %d shared, %d single and %d slow", all, shared, single, slow)
		}
		if n := q.Keys(); n != 0 && s.unlock == nil { // slow keys are remembered
			t.Errorf("%d key queues are left", n)
		}
	}
}

// merges reports whether an operation shares statements: a take that books nothing ahead.
func merges(op *limiter.Op) bool { return op.Kind == limiter.OpTake && op.MaxWait == 0 }

// failing returns a function for [sender.before] or [sender.after]. It fails the statements for which is returns true.
func failing(err error, is func(groups []*batch.Group) bool) func(ctx context.Context, groups []*batch.Group) error {
	return func(_ context.Context, groups []*batch.Group) error {
		if is(groups) {
			return err
		}
		return nil
	}
}

func together(groups []*batch.Group) bool { return len(groups) > 1 }

func always([]*batch.Group) bool { return true }

// has reports whether a statement is for a key.
func has(key string) func(groups []*batch.Group) bool {
	return func(groups []*batch.Group) bool {
		return slices.ContainsFunc(groups, func(g *batch.Group) bool { return g.Op().Key == key })
	}
}
