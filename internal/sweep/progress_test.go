package sweep_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sweep"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	t.Run("counts what the latest sweep did", func(t *testing.T) {
		t.Parallel()
		var log []string
		a, b := newRows("a", 600, &log).expire(0, 300), newRows("b", 10, &log)
		a.total, b.total = 600, 10
		var s sweep.Sweeper
		if got := s.Progress(2); got != (sweep.Progress{}) {
			t.Errorf("before the first sweep: %+v", got)
		}
		if _, err := s.Sweep(&countdown{Context: t.Context(), left: 2}, 1000, a.table(), b.table()); !errors.Is(err, limiter.ErrCanceled) {
			t.Fatal(err)
		}
		if got, want := s.Progress(2), (sweep.Progress{250, 260, 610, "61.3030323439,0"}); got != want {
			t.Errorf("after one page of each table: %+v, want %+v", got, want)
		}
		testenv.Must(t, testenv.ErrorOf(s.Sweep(t.Context(), 1000, a.table(), b.table())))
		if got := s.Progress(2); got.Deleted != 50 || got.Visited != got.Total {
			t.Errorf("after all pages: %+v", got)
		}
	})
	t.Run("continues in another sweeper", func(t *testing.T) {
		t.Parallel()
		var log []string
		a := newRows("a", 600, &log)
		var first, second sweep.Sweeper
		if _, err := first.Sweep(&countdown{Context: t.Context(), left: 2}, 1000, a.table()); !errors.Is(err, limiter.ErrCanceled) {
			t.Fatal(err)
		}
		if err := second.Continue(first.Progress(1).Position, 1, false); err != nil {
			t.Fatal(err)
		}
		log = nil
		if _, err := second.Sweep(&countdown{Context: t.Context(), left: 1}, 1000, a.table()); !errors.Is(err, limiter.ErrCanceled) {
			t.Fatal(err)
		}
		if want := []string{"a 00499"}; !slices.Equal(log, want) {
			t.Errorf("the pages after %q, want %q", log, want)
		}
	})
}

func TestContinue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		position string
		blocks   bool
		valid    bool
	}{
		{"12,0", true, true},
		{",7", true, true}, // the sweep did not reach the first table
		{"61.,0", false, true},
		{"61.ff,.00", false, true},
		{"12", true, false},
		{"1,2,3", true, false},
		{"-1,0", true, false},
		{"4294901759,0", true, true},
		{"4294901760,0", true, false},
		{"x,0", true, false},
		{"61.ff,0", true, false},
		{"12,0", false, false},
		{"6.ff,0", false, false},
		{"61.f,0", false, false},
	} {
		var s sweep.Sweeper
		err := s.Continue(c.position, 2, c.blocks)
		if (err == nil) != c.valid || err != nil && !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Continue(%q, %v) = %v", c.position, c.blocks, err)
		}
		if got := s.Progress(2).Position; c.valid && got != c.position {
			t.Errorf("after Continue(%q) the position is %q", c.position, got)
		}
	}
}
