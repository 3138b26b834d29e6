package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
)

var only = slices.Repeat([]string{"a"}, load.OrderLength)

func TestMeasureFailsOnAWrongDecisionAndOnAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		decider decider
		wants   bool
		rows    int
		message string
	}{
		"refused":       {decider{allow: func(context.Context, string) (bool, error) { return false, nil }}, true, 0, "want true"},
		"allowed":       {decider{allow: func(context.Context, string) (bool, error) { return true, nil }}, false, 0, "want false"},
		"error":         {decider{allow: func(context.Context, string) (bool, error) { return false, broken }}, false, 0, "broken"},
		"refused a row": {decider{batch: func(_ context.Context, keys []string) (int, error) { return len(keys) - 1, nil }}, true, 256, "255 of 256"},
		"allowed a row": {decider{batch: func(context.Context, []string) (int, error) { return 1, nil }}, false, 256, "1 of 256"},
	} {
		_, err := loadOf(c.decider, c.wants, 1, c.rows, only).Run(t.Context(), 2, 0, time.Hour)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.message)
		}
	}
}

func TestFillAsksForEveryKeyOnce(t *testing.T) {
	t.Parallel()
	names := scenario{name: "x", keys: 1000}.keyNames("")
	var asked atomic.Int64
	d := decider{
		allow: func(context.Context, string) (bool, error) {
			asked.Add(1)
			return true, nil
		},
		batch: func(_ context.Context, keys []string) (int, error) {
			asked.Add(int64(len(keys)))
			return len(keys), nil
		},
	}
	for _, rows := range []int{0, 256} {
		asked.Store(0)
		if err := fill(t.Context(), d, names, rows); err != nil || asked.Load() != 1000 {
			t.Errorf("rows %d: asked %d times, error %v", rows, asked.Load(), err)
		}
	}
	d.allow = func(context.Context, string) (bool, error) { return false, nil }
	if err := fill(t.Context(), d, names, 0); err == nil {
		t.Error("a refusal did not fail the fill")
	}
}

func TestMergedHasEachKeyOnce(t *testing.T) {
	t.Parallel()
	names, units := merged([]string{"a", "b", "a", "c", "a"})
	if !slices.Equal(names, []string{"a", "b", "c"}) || !slices.Equal(units, []int64{3, 1, 1}) {
		t.Errorf("merged = %v, %v", names, units)
	}
}
