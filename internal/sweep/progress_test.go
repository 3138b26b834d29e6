package sweep_test

import (
	"errors"
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
		testenv.Equal(t, s.Progress(2), sweep.Progress{}, "before the first sweep")
		testenv.ErrorIs(t, testenv.ErrorOf(s.Sweep(testenv.Looks(t.Context(), 2), 1000, a.table(), b.table())), limiter.ErrCanceled)
		testenv.Equal(t, s.Progress(2), sweep.Progress{250, 260, 610, "61.3030323439,0"}, "after a page of each table")
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
		testenv.ErrorIs(t, testenv.ErrorOf(first.Sweep(testenv.Looks(t.Context(), 2), 1000, a.table())), limiter.ErrCanceled)
		testenv.Must(t, second.Continue(first.Progress(1).Position, 1, false))
		log = nil
		testenv.ErrorIs(t, testenv.ErrorOf(second.Sweep(testenv.Looks(t.Context(), 1), 1000, a.table())), limiter.ErrCanceled)
		testenv.Equal(t, log, []string{"a 00499"}, "the pages after")
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
