package middleware_test

import (
	"context"
	"slices"
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
			if got := d.Violated(); !slices.Equal(got, test.violated) {
				t.Errorf("the rules without room are %q, want %q", got, test.violated)
			}
		})
	}
}
