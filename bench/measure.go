package main

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// loadOf has callers ask d for the keys in their order, and checks what it says: a decision that should
// have been the other is an error.
func loadOf(d decider, wants bool, sample, rows int, order []string) load.Load {
	ask := func(ctx context.Context, turn int) error {
		return expect(ctx, d, order[turn%load.OrderLength], wants)
	}
	if rows > 0 {
		ask = func(ctx context.Context, turn int) error {
			from := turn * rows % load.OrderLength
			return expectRows(ctx, d, order[from:from+rows], wants)
		}
	}
	return load.Load{Ask: ask, Requests: rows, Sample: sample}
}

// expect asks for one request, and fails if the decision is not the one wanted.
func expect(ctx context.Context, d decider, key string, wants bool) error {
	allowed, err := d.allow(ctx, key)
	if err == nil && allowed != wants {
		err = fmt.Errorf("%q: allowed is %t, want %t", key, allowed, wants)
	}
	return err
}

// expectRows asks for a request for each key, and fails unless all or none of them pass, as is wanted.
func expectRows(ctx context.Context, d decider, keys []string, wants bool) error {
	granted, err := d.batch(ctx, keys)
	want := 0
	if wants {
		want = len(keys)
	}
	if err == nil && granted != want {
		err = fmt.Errorf("%d of %d rows were granted, want %d", granted, len(keys), want)
	}
	return err
}
