package main

import (
	"context"
	"math"

	"github.com/go-redis/redis_rate/v10"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

func openRedisRate(ctx context.Context, b *backends, p policy) (decider, error) {
	client, err := b.redis(ctx)
	if err != nil {
		return decider{}, err
	}
	l := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1, Period: p.step, Burst: int(p.capacity)}
	return decider{allow: func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	}}, nil
}

func openThrottled(ctx context.Context, b *backends, p policy) (decider, error) {
	client, err := b.redis(ctx)
	if err != nil {
		return decider{}, err
	}
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return decider{}, err
	}
	return onThrottled(store, p)
}

// onThrottled lets throttled try as often as it takes. By itself it gives up, with an error, when
// others were faster ten times in a row, as they are on one hot key.
func onThrottled(store throttled.GCRAStoreCtx, p policy) (decider, error) {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, p.step), MaxBurst: int(p.capacity) - 1}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return decider{}, err
	}
	l.SetMaxCASAttemptsLimit(math.MaxInt)
	return decider{allow: func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}}, nil
}

// openUlule is a fixed window: ulule's limiter has no bucket.
func openUlule(ctx context.Context, b *backends, p policy) (decider, error) {
	client, err := b.redis(ctx)
	if err != nil {
		return decider{}, err
	}
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return decider{}, err
	}
	l := limiter.New(store, limiter.Rate{Limit: p.capacity, Period: day})
	return decider{allow: func(ctx context.Context, key string) (bool, error) {
		res, err := l.Get(ctx, key)
		return err == nil && !res.Reached, err
	}}, nil
}
