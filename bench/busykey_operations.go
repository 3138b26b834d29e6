package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
)

// busyCall is what a caller of the busy key does, again and again.
type busyCall func(ctx context.Context) (limiter.Result, error)

// operation makes the calls of the busy key on a store. key returns the key of the next call.
type operation struct {
	name string
	make func(store limiter.Store, key func() string) (busyCall, error)
}

var (
	// roomy is a bucket that always has room.
	roomy = limiter.TokenBucket{Capacity: 1_000_000_000, Refill: 1_000_000, Interval: time.Second}
	// wide is a window that, as a rule, does not end while a case is measured.
	wide     = limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour}
	counting = limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour, CountRejected: true}
)

// operations begin with the one that the others are compared with.
var operations = []operation{
	{"Allow on a bucket (merged)", allow(roomy, 1)},
	{"AllowN, costs 1 to 7", allow(roomy, 7)},
	{"Allow, refused", allow(limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Hour}, 1)},
	{"Allow on a window", allow(wide, 1)},
	{"Allow, CountRejected", allow(counting, 1)},
	{"AllowN, CountRejected, costs 1 to 7", allow(counting, 7)},
	{"Reserve", reserve(limiter.TokenBucket{Capacity: 1, Refill: 1_000_000, Interval: time.Second}, time.Hour)},
	{"Reserve, of many waits", reserve(limiter.TokenBucket{Capacity: 100, Refill: 1000, Interval: time.Second}, 0)},
	{"Reserve on a window", reserve(limiter.FixedWindow{Limit: 100, Window: time.Millisecond}, time.Hour)},
	{"Peek", kind(limiter.OpLook)},
	{"Refund", kind(limiter.OpRefund)},
	{"Cancel", kind(limiter.OpCancel)},
	{"Reset", kind(limiter.OpReset)},
	{"Allow by two policies in turn", twoPolicies},
}

// allow takes costs from 1 to highest.
func allow(policy limiter.Policy, highest int64) func(limiter.Store, func() string) (busyCall, error) {
	return func(store limiter.Store, key func() string) (busyCall, error) {
		l, err := limiter.New(store, "busy", policy, limiter.FailOpen())
		return func(ctx context.Context) (limiter.Result, error) { return l.AllowN(ctx, key(), 1+rand.Int64N(highest)) }, err
	}
}

// reserve books up to maxWait ahead; 0 is a random wait each time.
func reserve(policy limiter.Policy, maxWait time.Duration) func(limiter.Store, func() string) (busyCall, error) {
	return func(store limiter.Store, key func() string) (busyCall, error) {
		l, err := limiter.New(store, "busy", policy, limiter.FailOpen())
		return func(ctx context.Context) (limiter.Result, error) {
			wait := maxWait
			if wait == 0 {
				wait = rand.N(500 * time.Millisecond)
			}
			r, err := l.Reserve(ctx, key(), 1, wait)
			return r.Result, err
		}, err
	}
}

// kind sends operations that no failure policy applies to.
func kind(kind limiter.OpKind) func(limiter.Store, func() string) (busyCall, error) {
	return func(store limiter.Store, key func() string) (busyCall, error) {
		op := limiter.Op{Kind: limiter.OpTake, Name: "busy", Key: key(), Policy: roomy, Cost: 1000, Timeout: 10 * time.Second}
		state, err := store.Do(context.Background(), op)
		op.Kind, op.Cost, op.Timeout, op.Booked = kind, 1, limiter.DefaultTimeout, state
		return func(ctx context.Context) (limiter.Result, error) {
			op := op
			op.Key = key()
			_, err := store.Do(ctx, op)
			return limiter.Result{}, err
		}, err
	}
}

// twoPolicies takes under one policy or the other, as two versions of a program do.
func twoPolicies(store limiter.Store, key func() string) (busyCall, error) {
	first, err := allow(roomy, 1)(store, key)
	if err != nil {
		return nil, err
	}
	half := roomy
	half.Capacity /= 2
	second, err := allow(half, 1)(store, key)
	return func(ctx context.Context) (limiter.Result, error) {
		if rand.N(2) == 0 {
			return first(ctx)
		}
		return second(ctx)
	}, err
}
