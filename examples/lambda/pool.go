package main

import (
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/postgres"
)

// serverConns bounds the connections of a server. Ten are enough for 80 concurrent
// requests, because few of them use the database at the same time. The number of instances
// times serverConns must be less than the database's max_connections.
const serverConns = 10

// connectTimeout bounds connecting to the database.
const connectTimeout = 3 * time.Second

// poolConfig returns the configuration of the pool. Settings in the DSN override the ones
// here. The defaults of pgx suit long-lived servers that have a database to themselves.
func poolConfig(s settings) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(s.databaseURL)
	if err != nil {
		return nil, err
	}
	// ParseConfig of pgx does not know the settings of pools. It keeps them in RuntimeParams.
	dsn, err := pgx.ParseConfig(s.databaseURL)
	if err != nil {
		return nil, err
	}
	unless := func(setting string, apply func()) {
		if _, said := dsn.RuntimeParams[setting]; !said {
			apply()
		}
	}
	// A connection is closed well before its credentials expire. The jitter keeps the
	// instances from connecting all at once.
	conns, lifetime, jitter, idle := serverConns, 30*time.Minute, 5*time.Minute, 5*time.Minute
	if s.inLambda {
		// A function serves one request at a time, except on Lambda Managed Instances.
		// The second connection serves while pgx closes a broken one, which can take
		// 15 s. Idle connections are closed only while the function runs.
		conns, lifetime, jitter, idle = max(2, lambdacontext.MaxConcurrency()), 10*time.Minute, time.Minute, 2*time.Minute
	}
	unless("pool_max_conns", func() { config.MaxConns = int32(conns) })
	unless("pool_max_conn_lifetime", func() { config.MaxConnLifetime = lifetime })
	unless("pool_max_conn_lifetime_jitter", func() { config.MaxConnLifetimeJitter = jitter })
	unless("pool_max_conn_idle_time", func() { config.MaxConnIdleTime = idle })
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	// The process is frozen between two invocations and does not notice that its
	// connections die.
	postgres.PingAfterFreeze(config)
	return config, nil
}
