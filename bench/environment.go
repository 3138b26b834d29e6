package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/sqlimit/limiter/bench/internal/machine"
)

// peers are the modules whose versions matter.
var peers = []string{
	"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10",
	"github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3", "github.com/sethvargo/go-limiter",
	"github.com/go-chi/httprate", "golang.org/x/time",
}

// describe returns what the figures depend on, as a list. What cannot be found out is left out.
func describe(ctx context.Context, b *backends) string {
	database := ""
	if b.pg != nil {
		database = b.pg.Describe(ctx)
	}
	return machine.Describe(ctx, b.dir,
		machine.Item{Name: "PostgreSQL", Value: database},
		machine.Item{Name: "Redis", Value: b.describeRedis(ctx)},
		machine.Item{Name: "Modules", Value: modules()})
}

func (b *backends) describeRedis(ctx context.Context) string {
	if b.rdb == nil {
		return ""
	}
	info, err := b.rdb.Info(ctx, "server").Result()
	if err != nil {
		return ""
	}
	for _, l := range strings.Split(info, "\r\n") {
		if version, ok := strings.CutPrefix(l, "redis_version:"); ok {
			return fmt.Sprintf("%s; a pool of %d connections", version, b.rdb.Options().PoolSize)
		}
	}
	return ""
}

func modules() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	versions := make(map[string]string)
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
	}
	var list []string
	for _, path := range peers {
		if v := versions[path]; v != "" {
			list = append(list, strings.TrimPrefix(path, "github.com/")+" "+v)
		}
	}
	return strings.Join(list, ", ")
}
