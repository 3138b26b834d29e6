package main

import (
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/postgres"
)

// serverConns is how many connections a server has at most: of 80 requests at a time
// few are at the database at the same instant. Instances times this must be less than
// the database's max_connections.
const serverConns = 10

// connectTimeout is how long a connection may take to be made.
const connectTimeout = 3 * time.Second

// poolConfig returns the pool's configuration: what the DSN says, and where it says
// nothing, what fits. What pgx itself has there is made for long-lived servers with a
// database to themselves.
func poolConfig(s settings) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(s.databaseURL)
	if err != nil {
		return nil, err
	}
	// pgx knows nothing of pools, and leaves their settings where they are.
	dsn, err := pgx.ParseConfig(s.databaseURL)
	if err != nil {
		return nil, err
	}
	unless := func(setting string, apply func()) {
		if _, said := dsn.RuntimeParams[setting]; !said {
			apply()
		}
	}
	// Connections are closed well before the credentials that they were made with
	// expire, and spread over time, so that not all instances connect at once.
	conns, lifetime, jitter, idle := serverConns, 30*time.Minute, 5*time.Minute, 5*time.Minute
	if s.inLambda {
		// A function serves one request at a time, except on Lambda Managed Instances.
		// The second connection is for when the first one is being buried, which can
		// take pgx 15 s. Idle ones are closed only when the function runs.
		conns, lifetime, jitter, idle = max(2, lambdacontext.MaxConcurrency()), 10*time.Minute, time.Minute, 2*time.Minute
	}
	unless("pool_max_conns", func() { config.MaxConns = int32(conns) })
	unless("pool_max_conn_lifetime", func() { config.MaxConnLifetime = lifetime })
	unless("pool_max_conn_lifetime_jitter", func() { config.MaxConnLifetimeJitter = jitter })
	unless("pool_max_conn_idle_time", func() { config.MaxConnIdleTime = idle })
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	// Between two invocations the process stands still, and its connections die
	// unnoticed.
	postgres.PingAfterFreeze(config)
	return config, nil
}
