package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/internal/daemon"
)

// redisPoolSize is how many connections the contenders on Redis share: 32 were faster than 16. On
// PostgreSQL there is no best number for the UPSERT by hand. On two cores, 32 connections were up to a
// quarter faster than 16 on many keys, and as much slower on one key. 8 were the opposite.
const redisPoolSize = 32

// backends are where contenders keep their state. A server starts when a case needs it.
type backends struct {
	options
	began  time.Time
	temp   string // directory of temporary servers and files
	prefix string // of every key and name, so that runs do not meet

	pg    *database
	rdb   *redis.Client
	stops []func() error
}

func newBackends(o options) *backends {
	temp := try(os.MkdirTemp("", "limiter-bench-"))
	b := &backends{options: o, began: time.Now(), temp: temp, prefix: fmt.Sprintf("bench_%d", os.Getpid())}
	b.atClose(func() error { return os.RemoveAll(temp) })
	must(os.Chmod(temp, 0o755)) // for the account that the servers run as
	return b
}

func (b *backends) atClose(stop func() error) { b.stops = append(b.stops, stop) }

// close undoes all that was done, the latest first.
func (b *backends) close() (err error) {
	for _, stop := range slices.Backward(b.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

func (b *backends) file(name string) string { return filepath.Join(b.temp, name) }

func (b *backends) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts the server of a backend, or connects to it, unless that was done. SQLite and the process need
// none.
func (b *backends) start(ctx context.Context, backend string) {
	switch {
	case backend == onPostgres && b.pg == nil:
		b.startPostgres(ctx)
	case backend == onRedis && b.rdb == nil:
		b.startRedis(ctx)
	}
}

func (b *backends) startRedis(ctx context.Context) {
	addr := b.redis
	if addr == "" {
		addr = b.serveRedis(ctx)
	}
	const patience = 30 * time.Second
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: redisPoolSize, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	b.atClose(client.Close)
	must(client.Ping(ctx).Err())
	if b.redis != "" {
		b.atClose(func() error { return removeKeys(client, b.prefix) })
	}
	b.rdb = client
}

// serveRedis starts a server that keeps nothing on disk, and returns its address.
func (b *backends) serveRedis(ctx context.Context) (addr string) {
	server := try(daemon.New(b.temp, "redis", syscall.SIGKILL))
	b.atClose(server.Stop)
	ctx, cancel := context.WithTimeout(ctx, load.Grace)
	defer cancel()
	_, err := server.Serve(ctx, "redis-server",
		func(port uint16) ([]string, error) {
			addr = fmt.Sprintf("127.0.0.1:%d", port)
			return []string{"--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--save", "", "--appendonly", "no"}, nil
		},
		func(ctx context.Context, _ uint16) error {
			client := redis.NewClient(&redis.Options{Addr: addr})
			defer client.Close()
			return client.Ping(ctx).Err()
		})
	if err != nil {
		must(fmt.Errorf("start redis-server, or pass -redis: %w", err))
	}
	return addr
}

// removeKeys removes what the run left on a server that stays.
func removeKeys(client *redis.Client, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), load.Grace)
	defer cancel()
	found := client.Scan(ctx, 0, "*"+prefix+"*", 1000).Iterator()
	for found.Next(ctx) {
		if err := client.Unlink(ctx, found.Val()).Err(); err != nil {
			return err
		}
	}
	return found.Err()
}
