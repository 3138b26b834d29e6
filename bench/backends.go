package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/redis/go-redis/v9"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/migrations"
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

	pg      *database
	rdb     *redis.Client
	servers [][2]string // names, and what the figures depend on
	stops   []func() error
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

// database is a PostgreSQL database with schemas of this run, and the pool that all contenders share.
type database struct {
	*pgxpool.Pool
	dsn    string
	prefix string
}

// startPostgres connects to the database. Without -postgres it starts the newest PostgreSQL of this machine
// with its defaults, so that commits are durable, but with room for more connections: growth opens 112.
func (b *backends) startPostgres(ctx context.Context) {
	dsn := b.postgres
	if dsn == "" {
		starting, cancel := context.WithTimeout(ctx, load.Grace)
		defer cancel()
		server, err := daemon.StartPostgres(starting, b.temp, "max_connections=200")
		if err != nil {
			must(fmt.Errorf("start PostgreSQL, or pass -postgres: %w", err))
		}
		b.atClose(server.Stop)
		dsn = server.DSN
	}
	b.pg = &database{newPool(ctx, dsn, b.pool), dsn, b.prefix}
	b.atClose(b.pg.close)
	var about string
	must(b.pg.QueryRow(ctx, `SELECT format('%s; synchronous_commit = %s, fsync = %s, shared_buffers = %s; a pool of %s connections',
		current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
		current_setting('shared_buffers'), $1::int)`, b.pool).Scan(&about))
	b.servers = append(b.servers, [2]string{"PostgreSQL", about})
}

func newPool(ctx context.Context, dsn string, connections int) *pgxpool.Pool {
	config := try(pgxpool.ParseConfig(dsn))
	config.MaxConns, config.MinConns = int32(connections), int32(connections)
	pool := try(pgxpool.NewWithConfig(ctx, config))
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		must(fmt.Errorf("PostgreSQL: %w", err))
	}
	return pool
}

func (d *database) exec(ctx context.Context, statement string) {
	if _, err := d.Exec(ctx, statement); err != nil {
		must(fmt.Errorf("%s: %w", statement, err))
	}
}

// schema makes a schema of this run, unless it is there, and returns its name.
func (d *database) schema(ctx context.Context, name string) string {
	schema := d.prefix + "_" + name
	d.exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema)
	return schema
}

// migrated is a schema with the tables of limiter.
func (d *database) migrated(ctx context.Context, name string) string {
	schema := d.schema(ctx, name)
	db := try(sql.Open("pgx", d.dsn))
	defer db.Close()
	must(migrations.Up(ctx, migrations.Postgres, db, migrations.WithSchema(schema)))
	return schema
}

// table makes a table, with room on its pages for updates as the tables of limiter have it.
func (d *database) table(ctx context.Context, name, columns string) string {
	table := d.schema(ctx, "by_hand") + "." + name
	d.exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s) WITH (fillfactor = 70)", table, columns))
	return table
}

func (d *database) drop(ctx context.Context, schema string) {
	d.exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
}

// close removes all schemas of this run, and closes the pool.
func (d *database) close() (err error) {
	defer catch(&err)
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), load.Grace)
	defer cancel()
	rows := try(d.Query(ctx, "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, $1)", d.prefix+"_"))
	for _, schema := range try(pgx.CollectRows(rows, pgx.RowTo[string])) {
		d.drop(ctx, schema)
	}
	return nil
}

func (b *backends) startRedis(ctx context.Context) {
	addr := b.redis
	if addr == "" {
		addr = b.serveRedis(ctx)
	}
	const patience = 30 * time.Second
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: redisPoolSize, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	b.atClose(client.Close)
	info := client.InfoMap(ctx, "server")
	must(info.Err())
	b.servers = append(b.servers, [2]string{"Redis", fmt.Sprintf("%s; a pool of %d connections", info.Item("Server", "redis_version"), redisPoolSize)})
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
		func(port uint16) []string {
			addr = fmt.Sprintf("127.0.0.1:%d", port)
			return []string{"--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--save", "", "--appendonly", "no"}
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
