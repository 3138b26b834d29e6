package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sqlimit/limiter"
)

// operation is what the callers of the busy key do, one after another.
type operation struct {
	name string
	make func(store limiter.Store) (call func(ctx context.Context) (limiter.Result, error), err error)
}

// timeout is the time limit of all operations that are measured: the default.
const timeout = limiter.DefaultTimeout

// plenty is a bucket that always has room.
var plenty = limiter.TokenBucket{Capacity: 1_000_000_000, Refill: 1_000_000, Interval: time.Second}

// hour is a window that does not end while a case is measured, as a rule.
var hour = limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour}

const busy = "busy"

// keys is how many keys the callers share.
var keys = 1

// key returns one of them.
func key() string {
	if keys == 1 {
		return busy
	}
	return strconv.Itoa(rand.IntN(keys))
}

// operations begin with the one that the others are compared with.
var operations = []operation{
	{"Allow on a bucket (merged)", allow(plenty, 1)},
	{"AllowN, costs 1 to 7", allow(plenty, 7)},
	{"Allow, refused", allow(limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Hour}, 1)},
	{"Allow on a window", allow(hour, 1)},
	{"Allow, CountRejected", allow(counting(), 1)},
	{"AllowN, CountRejected, costs 1 to 7", allow(counting(), 7)},
	{"Reserve", reserve(limiter.TokenBucket{Capacity: 1, Refill: 1_000_000, Interval: time.Second}, time.Hour)},
	{"Reserve, of many waits", reserve(limiter.TokenBucket{Capacity: 100, Refill: 1000, Interval: time.Second}, 0)},
	{"Reserve on a window", reserve(limiter.FixedWindow{Limit: 100, Window: time.Millisecond}, time.Hour)},
	{"Peek", kind(limiter.OpLook)},
	{"Refund", kind(limiter.OpRefund)},
	{"Cancel", kind(limiter.OpCancel)},
	{"Reset", kind(limiter.OpReset)},
	{"Allow by two policies in turn", twoPolicies},
}

func counting() limiter.FixedWindow {
	w := hour
	w.CountRejected = true
	return w
}

// allow takes costs from 1 to highest.
func allow(policy limiter.Policy, highest int64) func(limiter.Store) (func(context.Context) (limiter.Result, error), error) {
	return func(store limiter.Store) (func(context.Context) (limiter.Result, error), error) {
		l, err := limiter.New(store, busy, policy, limiter.FailOpen())
		return func(ctx context.Context) (limiter.Result, error) {
			return l.AllowN(ctx, key(), 1+rand.Int64N(highest))
		}, err
	}
}

// reserve books up to maxWait ahead; 0 is a random wait each time.
func reserve(policy limiter.Policy, maxWait time.Duration) func(limiter.Store) (func(context.Context) (limiter.Result, error), error) {
	return func(store limiter.Store) (func(context.Context) (limiter.Result, error), error) {
		l, err := limiter.New(store, busy, policy, limiter.FailOpen())
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
func kind(kind limiter.OpKind) func(limiter.Store) (func(context.Context) (limiter.Result, error), error) {
	return func(store limiter.Store) (func(context.Context) (limiter.Result, error), error) {
		op := limiter.Op{Kind: limiter.OpTake, Name: busy, Key: busy, Policy: plenty, Cost: 1000, Timeout: 10 * time.Second}
		state, err := store.Do(context.Background(), op)
		op.Kind, op.Cost, op.Timeout, op.Booked = kind, 1, timeout, state
		return func(ctx context.Context) (limiter.Result, error) {
			op := op
			op.Key = key()
			_, err := store.Do(ctx, op)
			return limiter.Result{}, err
		}, err
	}
}

// twoPolicies takes under one policy or the other, as two versions of a program do.
func twoPolicies(store limiter.Store) (func(context.Context) (limiter.Result, error), error) {
	first, err := allow(plenty, 1)(store)
	if err != nil {
		return nil, err
	}
	other := plenty
	other.Capacity /= 2
	second, err := allow(other, 1)(store)
	return func(ctx context.Context) (limiter.Result, error) {
		if rand.N(2) == 0 {
			return first(ctx)
		}
		return second(ctx)
	}, err
}
