package main

import (
	"context"
	"log/slog"
	"math"
	"time"
)

// sweepMargin is what a sweep leaves of its time, to answer in.
const sweepMargin = time.Second

// swept is the outcome of a sweep.
type swept struct {
	// Removed is how many rows were removed.
	Removed int64 `json:"removed"`
}

// sweep removes the rows of all keys that have been as if never used for an hour, a
// page at a time. If the time of ctx is not enough the next sweep goes on.
func sweep(ctx context.Context, store Store) (swept, error) {
	limited := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		limited, cancel = context.WithDeadline(ctx, deadline.Add(-sweepMargin))
		defer cancel()
	}
	removed, err := store.Sweep(limited, math.MaxInt)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "the sweep was not finished in its time", "removed", removed)
		err = nil
	}
	return swept{Removed: removed}, err
}
