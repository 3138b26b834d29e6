package postgres

import (
	"context"
	"errors"
	"sync/atomic"
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

// lastUse is where a connection keeps its latest *use, in its CustomData.
const lastUse = "github.com/sqlimit/limiter/postgres: last use"

// use is when a connection was taken from its pool: by the wall clock, and as which
// in the order of all uses, since clocks can be stepped back.
type use struct {
	at   time.Time
	turn int64
}

// PingAfterFreeze makes the pools of config notice connections that died while the
// process stood still, as it does between two invocations of a Lambda function. A
// pool measures rest on a clock that stands still with the process: it takes a
// connection whose server has long closed it for one that was used a moment ago,
// and what is sent on it is lost, with an outcome that nobody knows.
//
// Pools of config ping a connection before they hand it out if by the wall clock it
// was taken more than 5 s ago, or in the future. One that has not answered when
// config's PingTimeout is over, which becomes 200 ms if it is 0, is closed, with all
// that have not been used since, and another takes its place. Connections that rest
// for less are not pinged, where pgxpool would ping after 1 s. Its own ping has no limit
// where the operation has no deadline: a peer that has gone without a word then holds its
// place in the pool for 75 s. Hooks that config has are called as before.
//
// Call it once, before [pgxpool.NewWithConfig]. [Open] has done it for the pools that
// it makes. It does no I/O, starts nothing, and panics if config is nil.
func PingAfterFreeze(config *pgxpool.Config) {
	pingAfterFreeze(config, time.Now)
}

func pingAfterFreeze(config *pgxpool.Config, now func() time.Time) {
	if config.PingTimeout == 0 {
		config.PingTimeout = pongWithin
	}
	timeout := config.PingTimeout
	var turns, dead atomic.Int64
	note := func(conn *pgx.Conn) (before *use) {
		data := conn.PgConn().CustomData()
		before, _ = data[lastUse].(*use)
		data[lastUse] = &use{at: now().Round(0), turn: turns.Add(1)} // without the monotonic part
		return before
	}

	// A connection whose caller has gone before it was made goes to the pool unused.
	afterConnect := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		note(conn)
		if afterConnect == nil {
			return nil
		}
		return afterConnect(ctx, conn)
	}

	// The use is noted when a connection is taken and not when it is given back: for
	// AfterRelease pgxpool would start a goroutine each time, which a freeze can hold
	// up. A use takes milliseconds; a long one costs a ping that was not needed.
	shouldPing := config.ShouldPing
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		before := note(p.Conn)
		switch {
		case before != nil && before.turn <= dead.Load():
			// Gone with one that was used after it: to ask each would take too long.
			_ = p.Conn.PgConn().Conn().Close()
			return true // the pool's ping fails at once, and it drops the connection
		case before == nil || before.rested(now(), p.IdleDuration):
			answered, silent := alive(ctx, p.Conn, timeout)
			if silent && before != nil {
				dead.Store(before.turn)
			}
			if !answered {
				return true
			}
		}
		return shouldPing != nil && shouldPing(ctx, p)
	}
}

// rested reports whether a connection may have died since it was used.
func (u *use) rested(now time.Time, idle time.Duration) bool {
	rest := now.Round(0).Sub(u.at)
	return rest < 0 || max(rest, idle) > restedFor
}

// leaveWithin is how long a ping goes on after its caller has left. A server that is there
// answers in that time, and the caller learns of its deadline no more than that too late.
const leaveWithin = 25 * time.Millisecond

// alive pings conn, closes it unless it answers, and reports whether it did, or otherwise whether it
// was silent for all of timeout. The pool's own ping leaves closing to pgx, which waits up to 15 s
// for a peer that has gone; a pool of one connection would be of no use for so long.
func alive(ctx context.Context, conn *pgx.Conn, timeout time.Duration) (answered, silent bool) {
	// A caller who leaves must not break a connection that works.
	ping, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveWithin, cancel) })()
	if err := conn.Ping(ping); err != nil {
		_ = conn.PgConn().Conn().Close()
		return false, errors.Is(ping.Err(), context.DeadlineExceeded)
	}
	return true, false
}
