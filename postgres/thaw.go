package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// restedFor is how long a connection may rest before it is asked whether it is
	// alive. To ask costs a round trip, as much as a decision: pgxpool's own second
	// would double the time of every request that comes a moment after the last one.
	restedFor = 5 * time.Second
	// pongWithin is how long the answer may take: less than limiter.DefaultTimeout,
	// so that a decision that met a dead connection can still make a new one.
	pongWithin = 200 * time.Millisecond
)

// usedAt is where a connection keeps the time of its last use, a time.Time of the
// wall clock, in its CustomData.
const usedAt = "github.com/sqlimit/limiter/postgres: used at"

// PingAfterFreeze makes the pools of config notice connections that died while the
// process stood still, as it does between two invocations of a Lambda function. A
// pool measures rest on a clock that stands still with the process: it takes a
// connection whose server has long closed it for one that was used a moment ago,
// and what is sent on it is lost, with an outcome that nobody knows.
//
// Pools of config ping a connection before they hand it out if by the wall clock it
// was taken more than 5 s ago, or in the future. One that has not answered when
// config's PingTimeout is over, which becomes 200 ms if it is 0, is closed, and
// another takes its place. Connections that rest for less are not pinged, where
// pgxpool would ping after 1 s. Hooks that config has are called as before.
//
// Call it once, before [pgxpool.NewWithConfig]. [Open] has done it for the pools that
// it makes. It does no I/O and starts nothing.
func PingAfterFreeze(config *pgxpool.Config) {
	pingAfterFreeze(config, time.Now)
}

func pingAfterFreeze(config *pgxpool.Config, now func() time.Time) {
	if config.PingTimeout == 0 {
		config.PingTimeout = pongWithin
	}
	timeout := config.PingTimeout
	wall := func() time.Time { return now().Round(0) } // without its monotonic part

	// A connection whose caller has gone before it was made goes to the pool unused.
	afterConnect := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.PgConn().CustomData()[usedAt] = wall()
		if afterConnect == nil {
			return nil
		}
		return afterConnect(ctx, conn)
	}

	// The time is noted when a connection is taken and not when it is given back:
	// for AfterRelease pgxpool would start a goroutine each time, which a freeze can
	// hold up. A use takes milliseconds; a long one costs a ping that was not needed.
	shouldPing := config.ShouldPing
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		data, at := p.Conn.PgConn().CustomData(), wall()
		last, known := data[usedAt].(time.Time)
		data[usedAt] = at
		rested := at.Sub(last)
		if !known || rested < 0 || max(rested, p.IdleDuration) > restedFor {
			if !alive(ctx, p.Conn, timeout) {
				return true // the pool's ping fails at once, and it drops the connection
			}
		}
		return shouldPing != nil && shouldPing(ctx, p)
	}
}

// alive pings conn, and closes it if there is no answer in time. The pool's own ping
// leaves that to pgx, which says farewell to a peer that has gone for 15 s, in which
// the pool counts the connection: one of a single connection would be of no use.
func alive(ctx context.Context, conn *pgx.Conn, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := conn.Ping(ctx); err != nil {
		_ = conn.PgConn().Conn().Close()
		return false
	}
	return true
}
