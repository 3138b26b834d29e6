package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/middleware"
)

// failsFor is a store in memory that fails for the limiters of one name.
type failsFor struct {
	*memory.Store
	name string
}

func (f failsFor) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.Name == f.name {
		return limiter.State{}, limiter.ErrNotApplied
	}
	return f.Store.Do(ctx, op)
}

// Rules of cost 0 decide alone if one of them refuses, or if all rules cost 0.
func TestBinding(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name     string
		blocks   [2]time.Duration
		used     [2]int64
		fails    string
		binding  int
		violated []string
	}{
		{"the only refusal, first", [2]time.Duration{10 * time.Second, 0}, [2]int64{0, 4}, "", 0, []string{"a"}},
		{"the only refusal, second", [2]time.Duration{0, 10 * time.Second}, [2]int64{4, 0}, "", 1, []string{"b"}},
		{"the longer refusal, first", [2]time.Duration{20 * time.Second, 10 * time.Second}, [2]int64{}, "", 0, []string{"a", "b"}},
		{"the longer refusal, second", [2]time.Duration{10 * time.Second, 20 * time.Second}, [2]int64{}, "", 1, []string{"a", "b"}},
		{"the least left, first", [2]time.Duration{}, [2]int64{2, 1}, "", 0, nil},
		{"the least left, second", [2]time.Duration{}, [2]int64{1, 2}, "", 1, nil},
		{"the quota that is known, first", [2]time.Duration{}, [2]int64{}, "b", 0, nil},
		{"the quota that is known, second", [2]time.Duration{}, [2]int64{}, "a", 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := failsFor{memory.New(), test.fails}
			var rules []middleware.Rule[string]
			for i, name := range []string{"a", "b"} {
				l, err := limiter.New(store, name, limiter.PerHour(5), limiter.FailOpen(),
					limiter.WithClock(func() time.Time { return now }))
				testenv.Must(t, err)
				testenv.Must(t, testenv.ErrorOf(l.AllowN(t.Context(), "k", test.used[i])))
				if test.blocks[i] > 0 {
					testenv.Must(t, l.Block(t.Context(), "k", test.blocks[i]))
				}
				rules = append(rules, middleware.Rule[string]{
					Limiter: l, Key: func(s string) (string, error) { return s, nil }, Cost: func(string) int64 { return 0 },
				})
			}
			r, err := middleware.NewAll(rules, false)
			testenv.Must(t, err)
			var d middleware.Decision
			if err := r.Decide(t.Context(), "k", &d); err != nil || d.Binding != test.binding || d.Result != d.Results[test.binding].Result {
				t.Errorf("rule %d decides with %+v, %v; want rule %d of %+v", d.Binding, d.Result, err, test.binding, d.Results)
			}
			testenv.Equal(t, d.Violated(), test.violated, "the rules without room")
		})
	}
}

func TestCauseOf(t *testing.T) {
	t.Parallel()
	noUser := middleware.NoKey(middleware.WithoutUser, "no %s", "user")
	for name, test := range map[string]struct {
		err  error
		want middleware.Cause
	}{
		"a store that failed":         {limiter.ErrNotApplied, middleware.NoDecision},
		"a negative cost":             {limiter.ErrInvalid, middleware.Misused},
		"a cost that is too high":     {fmt.Errorf("%w: 5", limiter.ErrExceedsCapacity), middleware.TooCostly},
		"an error of the application": {fmt.Errorf("%w: %w", middleware.ErrNoKey, limiter.ErrInvalid), middleware.WithoutKey},
		"an error of NoKey":           {noUser, middleware.WithoutUser},
		"an error that wraps it":      {fmt.Errorf("alice: %w", noUser), middleware.WithoutUser},
		"another cause for NoKey":     {middleware.NoKey(middleware.TooCostly, "a mistake"), middleware.WithoutKey},
		"no cause for NoKey":          {middleware.NoKey(middleware.WithoutUser+1, "a mistake"), middleware.WithoutKey},
	} {
		testenv.Equal(t, middleware.CauseOf(test.err), test.want, name)
	}
	if !errors.Is(noUser, middleware.ErrNoKey) || noUser.Error() != "limiter: the request has no key: no user" {
		t.Errorf("NoKey returned %q", noUser)
	}
	testenv.Equal(t, middleware.Cause(255).String(), middleware.NoDecision.String(), "an unknown cause")
}

// A consumer of a queue limits each sender.
func Example() {
	type message struct {
		sender string
		bytes  int64
	}
	perSender, err := limiter.New(memory.New(), "sender", limiter.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	rules, err := middleware.New(middleware.Rule[message]{
		Limiter: perSender,
		Key:     func(m message) (string, error) { return m.sender, nil },
		Cost:    func(m message) int64 { return m.bytes },
	}, false)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range []message{{"ann", 700}, {"ann", 700}, {"", 1}} {
		var d middleware.Decision
		if err := rules.Decide(context.Background(), m, &d); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(d.Result.Allowed, d.Result.Remaining, d.Violated())
	}
	// Output:
	// true 300 []
	// false 300 [sender]
	// limiter: the request has no key: the key function returned an empty key; return one, or leave such requests out with Skip
}
