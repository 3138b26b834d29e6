package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// call is one call that a test expects, and what it answers.
type call struct {
	name    string // under the lock: "held " before it; Commit is the end of Hold
	state   limiter.State
	yes     bool // decided, swapped or changed
	reading sqlstore.Reading
	err     error
}

// script is a Table that answers as it was told and wants those calls, no others.
type script struct {
	t     *testing.T
	held  string
	calls *[]call
	last  *sqlstore.Reading
	op    limiter.Op
}

func (s script) next(name string, op limiter.Op) call {
	s.t.Helper()
	if op != s.op {
		s.t.Errorf("%s of %+v, want %+v", name, op, s.op)
	}
	if len(*s.calls) == 0 {
		s.t.Fatalf("%s%s is called, and nothing is expected any more", s.held, name)
	}
	c := (*s.calls)[0]
	*s.calls = (*s.calls)[1:]
	if c.name != s.held+name {
		s.t.Fatalf("%s%s is called, want %s", s.held, name, c.name)
	}
	return c
}

func (s script) Take(_ context.Context, op limiter.Op) (limiter.State, bool, error) {
	c := s.next("Take", op)
	return c.state, c.yes, c.err
}

func (s script) Look(_ context.Context, op limiter.Op) (sqlstore.Reading, error) {
	c := s.next("Look", op)
	*s.last = c.reading
	return c.reading, c.err
}

func (s script) Swap(_ context.Context, op limiter.Op, from, to limiter.Row) (bool, error) {
	c := s.next("Swap", op)
	if next, _ := op.Apply(s.last.Row, s.last.Now); from != s.last.Row || to != next {
		s.t.Errorf("Swap(%+v, %+v), want what was read, %+v, and %+v", from, to, s.last.Row, next)
	}
	return c.yes, c.err
}

func (s script) Hold(_ context.Context, op limiter.Op, f func(sqlstore.Table) error) error {
	if c := s.next("Hold", op); c.err != nil {
		return c.err
	}
	held := s
	held.held = "held "
	if err := f(held); err != nil {
		return err
	}
	return s.next("Commit", op).err
}

func (s script) Change(_ context.Context, op limiter.Op) (bool, error) {
	c := s.next("Change", op)
	return c.yes, c.err
}

const now = 1_800_000_000_000_000_000

var (
	policy = limiter.PerHour(2)
	op     = limiter.Op{Kind: limiter.OpTake, Name: "n", Key: "k", Policy: policy, Cost: 1}

	granted = limiter.State{Took: true, Now: 7, Tick: 1000}
	unused  = sqlstore.Reading{Now: now, Tick: 1000}
	used    = sqlstore.Reading{Now: now, Tick: 1000, Row: limiter.Row{
		FullAt: now + int64(policy.Step()), At: now, Period: int64(policy.Step()), Limit: policy.Capacity,
	}}
	exhausted = sqlstore.Reading{Now: now, Tick: 1000, Row: limiter.Row{
		FullAt: now + 2*int64(policy.Step()), At: now, Period: int64(policy.Step()), Limit: policy.Capacity,
	}}

	errBroken = errors.New("broken")
)

// applied is what op answers on what was read.
func applied(op limiter.Op, r sqlstore.Reading) limiter.State {
	_, s := op.Apply(r.Row, r.Now)
	s.Tick = r.Tick
	return s
}

// play carries op out by a script, which must be played to its end.
func play(t *testing.T, op limiter.Op, calls []call) (limiter.State, error) {
	t.Helper()
	s, err := sqlstore.Do(t.Context(), script{t, "", &calls, new(sqlstore.Reading), op}, op)
	if len(calls) > 0 {
		t.Errorf("%s is not called", calls[0].name)
	}
	return s, err
}

func TestTake_goes_from_the_hot_statement_to_the_lock(t *testing.T) {
	t.Parallel()
	undecided := call{name: "Take"}
	look := func(r sqlstore.Reading) call { return call{name: "Look", reading: r} }
	lost, won := call{name: "Swap"}, call{name: "Swap", yes: true}
	hold, commit := call{name: "Hold"}, call{name: "Commit"}
	held := func(c call) call { c.name = "held " + c.name; return c }
	fails := func(name string) call { return call{name: name, err: errBroken} }

	// Whoever loses under the lock is told to look at the row as it was.
	read := op
	read.Kind = limiter.OpLook

	cases := []struct {
		name  string
		calls []call
		want  limiter.State
		err   error
	}{
		{"decided", []call{{name: "Take", state: granted, yes: true}}, granted, nil},
		{"won", []call{undecided, look(used), won}, applied(op, used), nil},
		{"won without a row", []call{undecided, look(unused), won}, applied(op, unused), nil},
		{"refused, nothing to write", []call{undecided, look(exhausted)}, applied(op, exhausted), nil},
		{"lost, decided", []call{
			undecided, look(unused), lost,
			{name: "Take", state: granted, yes: true},
		}, granted, nil},
		{"lost, won", []call{undecided, look(unused), lost, undecided, look(used), won}, applied(op, used), nil},
		{"lost, lost, held", []call{
			undecided, look(unused), lost, undecided, look(unused), lost,
			hold, held(look(used)), held(won), commit,
		}, applied(op, used), nil},
		{"lost, lost, refused under the lock", []call{
			undecided, look(unused), lost, undecided, look(unused), lost,
			hold, held(look(exhausted)), commit,
		}, applied(op, exhausted), nil},
		{"lost, lost, lost a row that had just been made, held", []call{
			undecided, look(unused), lost, undecided, look(unused), lost,
			hold, held(look(unused)), held(lost), commit, hold, held(look(used)), held(won), commit,
		}, applied(op, used), nil},
		{"lost, lost, lost twice under the lock", []call{
			undecided, look(unused), lost, undecided, look(unused), lost,
			hold, held(look(unused)), held(lost), commit, hold, held(look(used)), held(lost), commit,
		}, applied(read, used), nil},

		{"statement fails", []call{fails("Take")}, limiter.State{}, errBroken},
		{"look fails", []call{undecided, fails("Look")}, limiter.State{}, errBroken},
		{"swap fails", []call{undecided, look(used), fails("Swap")}, limiter.State{}, errBroken},
		{"second statement fails", []call{undecided, look(used), lost, fails("Take")}, limiter.State{}, errBroken},
		{"second look fails", []call{undecided, look(used), lost, undecided, fails("Look")}, limiter.State{}, errBroken},
		{"second swap fails", []call{
			undecided, look(used), lost, undecided, look(used), fails("Swap"),
		}, limiter.State{}, errBroken},
		{"lock fails", []call{
			undecided, look(used), lost, undecided, look(used), lost,
			fails("Hold"),
		}, limiter.State{}, errBroken},
		{"look under the lock fails", []call{
			undecided, look(used), lost, undecided, look(used), lost,
			hold, held(fails("Look")),
		}, limiter.State{}, errBroken},
		{"swap under the lock fails", []call{
			undecided, look(used), lost, undecided, look(used), lost,
			hold, held(look(used)), held(fails("Swap")),
		}, limiter.State{}, errBroken},
		{"commit fails", []call{
			undecided, look(used), lost, undecided, look(used), lost,
			hold, held(look(used)), held(won), fails("Commit"),
		}, limiter.State{}, errBroken},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := play(t, op, c.calls)
			if s != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %+v, %v\nwant %+v, %v", s, err, c.want, c.err)
			}
		})
	}
}

func TestTake_that_loses_under_the_lock_is_told_to_come_back_at_once(t *testing.T) {
	t.Parallel()
	lost := []call{{name: "Take"}, {name: "Look", reading: used}, {name: "Swap"}}
	calls := append(append([]call{}, lost...), lost...)
	for range 2 {
		calls = append(calls, call{name: "Hold"}, call{name: "held Look", reading: used}, call{name: "held Swap"}, call{name: "Commit"})
	}
	l, err := limiter.New(store(func(_ context.Context, op limiter.Op) (limiter.State, error) {
		return play(t, op, calls)
	}), "n", policy)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Allow(t.Context(), "k")
	if err != nil || r.Allowed || r.Remaining != 1 || r.RetryAfter > time.Microsecond {
		t.Errorf("Allow = %+v, %v; want a refusal with 1 remaining, to be tried again at once", r, err)
	}
}

// A refusal that would have converted the row tells its own wait, not that of the
// cost of 1 that a look asks for.
func TestRefusal_that_loses_under_the_lock_tells_its_own_wait(t *testing.T) {
	t.Parallel()
	lost := []call{{name: "Take"}, {name: "Look", reading: exhausted}, {name: "Swap"}}
	calls := append(append([]call{}, lost...), lost...)
	for range 2 {
		calls = append(calls, call{name: "Hold"}, call{name: "held Look", reading: exhausted}, call{name: "held Swap"}, call{name: "Commit"})
	}
	larger := limiter.TokenBucket{Capacity: 100, Refill: 1, Interval: policy.Step()}
	l, err := limiter.New(store(func(_ context.Context, op limiter.Op) (limiter.State, error) {
		return play(t, op, calls)
	}), "n", larger)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.AllowN(t.Context(), "k", 50)
	if want := 50 * policy.Step(); err != nil || r.Allowed || r.RetryAfter != want {
		t.Errorf("AllowN(50) = %+v, %v; want a refusal for %v", r, err, want)
	}
}

type store func(ctx context.Context, op limiter.Op) (limiter.State, error)

func (f store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) { return f(ctx, op) }

func TestOperations_call_one_statement(t *testing.T) {
	t.Parallel()
	cases := []struct {
		kind  limiter.OpKind
		calls []call
		want  func(op limiter.Op) limiter.State
		err   error
	}{
		{limiter.OpLook, []call{{name: "Look", reading: used}}, func(op limiter.Op) limiter.State { return applied(op, used) }, nil},
		{limiter.OpLook, []call{{name: "Look", err: errBroken}}, nil, errBroken},
		{limiter.OpRefund, []call{{name: "Change", yes: true}}, func(limiter.Op) limiter.State { return limiter.State{Took: true} }, nil},
		{limiter.OpCancel, []call{{name: "Change", yes: true}}, func(limiter.Op) limiter.State { return limiter.State{Took: true} }, nil},
		{limiter.OpReset, []call{{name: "Change"}}, nil, nil},
		{limiter.OpReset, []call{{name: "Change", err: errBroken}}, nil, errBroken},
		{0, nil, nil, errors.ErrUnsupported},
		{99, nil, nil, errors.ErrUnsupported},
	}
	for _, c := range cases {
		op := op
		op.Kind = c.kind
		var want limiter.State
		if c.want != nil {
			want = c.want(op)
		}
		s, err := play(t, op, c.calls)
		if s != want || !errors.Is(err, c.err) {
			t.Errorf("operation %d: got %+v, %v; want %+v, %v", c.kind, s, err, want, c.err)
		}
	}
}

func TestClassified_knows_the_classes_of_the_limiter_and_nothing_else(t *testing.T) {
	t.Parallel()
	for _, class := range []error{
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrInvalid, limiter.ErrCanceled,
	} {
		if !sqlstore.Classified(class) || !sqlstore.Classified(fmt.Errorf("x: %w: %w", class, errBroken)) {
			t.Errorf("%v is not one", class)
		}
	}
	for _, other := range []error{nil, errBroken, context.Canceled, errors.ErrUnsupported} {
		if sqlstore.Classified(other) {
			t.Errorf("%v is one", other)
		}
	}
}
