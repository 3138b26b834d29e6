package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/rueidis"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"
)

// day is the window of those who have no bucket.
const day = 24 * time.Hour

func openGoLimiter(_ context.Context, b *backends, p policy) decider {
	store := try(memorystore.New(&memorystore.Config{Tokens: uint64(p.capacity), Interval: day}))
	b.atClose(func() error { return store.Close(context.Background()) })
	return single(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	})
}

func openThrottledMemory(_ context.Context, _ *backends, p policy) decider {
	return onThrottled(try(memstore.NewCtx(0)), p) // all keys, as its peers hold them
}

// openHTTPRate uses all of httprate but its headers, which no answer carries here.
func openHTTPRate(ctx context.Context, _ *backends, p policy) decider {
	limiter := httprate.NewRateLimiter(int(p.capacity), day, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request := try(http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	return single(func(_ context.Context, key string) (bool, error) { return !limiter.OnLimit(nil, request, key), nil })
}

// openTimeRate is what many programs have: a map of limiters under a lock, from which nothing is
// ever removed.
func openTimeRate(_ context.Context, _ *backends, p policy) decider {
	var mu sync.RWMutex
	limiters := make(map[string]*rate.Limiter)
	get := func(key string) *rate.Limiter {
		mu.RLock()
		l := limiters[key]
		mu.RUnlock()
		if l != nil {
			return l
		}
		mu.Lock()
		defer mu.Unlock()
		if l = limiters[key]; l == nil {
			l = rate.NewLimiter(rate.Every(p.step), int(p.capacity))
			limiters[key] = l
		}
		return l
	}
	return single(func(_ context.Context, key string) (bool, error) { return get(key).Allow(), nil })
}

func openRedisRate(_ context.Context, b *backends, p policy) decider {
	l := redis_rate.NewLimiter(b.rdb)
	limit := redis_rate.Limit{Rate: 1, Period: p.step, Burst: int(p.capacity)}
	return single(func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	})
}

// gcra is the rule of redis_rate in fewer commands, in microseconds. ARGV has the time of one token, and that
// of the bucket.
var gcra = rueidis.NewLuaScript(`
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local full = math.max(redis.call("GET", KEYS[1]) or 0, now) + ARGV[1]
local left = now + ARGV[2] - full
if left < 0 then
  return {0, 0, -left, full - ARGV[1] - now}
end
redis.call("SET", KEYS[1], full, "PX", math.ceil((full - now) / 1000))
return {1, left / ARGV[1], 0, full - now}`)

// openRueidis is what one writes on a client that sends the commands of many callers together. Waiting 20 µs
// for more of them, as rueidis suggests, was 34 % faster with 64 callers on two cores, and 48 % with 256.
func openRueidis(_ context.Context, b *backends, p policy) decider {
	client := try(rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{b.rdb.Options().Addr}, ForceSingleClient: true, DisableCache: true, MaxFlushDelay: 20 * time.Microsecond,
	}))
	b.atClose(func() error { client.Close(); return nil })
	step := p.step.Microseconds()
	limit := []string{fmt.Sprint(step), fmt.Sprint(p.capacity * step)}
	return single(func(ctx context.Context, key string) (bool, error) {
		res, err := gcra.Exec(ctx, client, []string{"rueidis:" + key}, limit).AsIntSlice()
		return err == nil && res[0] == 1, err
	})
}

func openThrottled(_ context.Context, b *backends, p policy) decider {
	return onThrottled(try(goredisstore.NewCtx(b.rdb, "throttled:")), p)
}

// onThrottled lets throttled try as often as it takes. By itself it gives up, with an error, when
// others were faster ten times in a row, as they are on one hot key.
func onThrottled(store throttled.GCRAStoreCtx, p policy) decider {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, p.step), MaxBurst: int(p.capacity) - 1}
	l := try(throttled.NewGCRARateLimiterCtx(store, quota))
	l.SetMaxCASAttemptsLimit(math.MaxInt)
	return single(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	})
}

// openUlule is a fixed window: ulule's limiter has no bucket.
func openUlule(_ context.Context, b *backends, p policy) decider {
	l := limiter.New(try(ululeredis.NewStore(b.rdb)), limiter.Rate{Limit: p.capacity, Period: day})
	return single(func(ctx context.Context, key string) (bool, error) {
		res, err := l.Get(ctx, key)
		return err == nil && !res.Reached, err
	})
}
