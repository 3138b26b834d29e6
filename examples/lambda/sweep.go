package main

import (
	"context"
	"log/slog"
	"math"
	"time"
)

// sweepMargin is the time that a sweep leaves for the response.
const sweepMargin = time.Second

// swept is the result of a sweep.
type swept struct {
	// Removed is the number of rows that were deleted.
	Removed int64 `json:"removed"`
}

// sweep deletes the rows of keys that have been unused for an hour, in batches.
// If the deadline of ctx comes first, later sweeps delete the rest: each starts where the
// last one of its process stopped, or at a random position.
func sweep(ctx context.Context, store Store) (swept, error) {
	limited := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		limited, cancel = context.WithDeadline(ctx, deadline.Add(-sweepMargin))
		defer cancel()
	}
	removed, err := store.Sweep(limited, math.MaxInt64)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "the sweep reached its deadline; the next one continues", "removed", removed)
		err = nil
	}
	return swept{Removed: removed}, err
}
