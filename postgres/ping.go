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
	// maxIdle is how long a connection may be idle before the pool pings it. A ping is a round
	// trip, as long as a decision. pgxpool's default of 1 s would double the time of every request
	// that comes a moment after the last one.
	maxIdle = 5 * time.Second
	// pingTimeout is how long a ping may take. It is less than limiter.DefaultTimeout, so that a
	// decision that got a dead connection can still make a new one.
	pingTimeout = 200 * time.Millisecond
)

// lastUse is the key in CustomData under which a connection keeps its latest *use.
const lastUse = "github.com/sqlimit/limiter/postgres: last use"

// use is when a connection was taken from its pool: the wall clock, and the position in the order
// of all uses, because clocks can be stepped back.
type use struct {
	at    time.Time
	order int64
}

// PingAfterFreeze makes the pools of config notice connections that died while the process was
// frozen, as a Lambda function is between two invocations. Without it, a pool takes such a
// connection for one that was used a moment ago, because its clock stands still with the process. A
// statement sent on it is lost, and its outcome is unknown.
//
// A pool then pings a connection before use if, by the wall clock, its last use was more than 5 s
// ago or in the future. If the connection does not answer within config.PingTimeout (200 ms if that
// is 0), the pool closes it and all connections that were last used before it, and makes a new one.
// Connections with less idle time get no ping, while pgxpool by default pings after 1 s without a
// limit of its own. PingAfterFreeze keeps the hooks of config.
//
// Call it once, before [pgxpool.NewWithConfig]. [Open] calls it for its own pools. It does no I/O.
// It panics if config is nil.
func PingAfterFreeze(config *pgxpool.Config) {
	pingAfterFreeze(config, time.Now)
}

func pingAfterFreeze(config *pgxpool.Config, now func() time.Time) {
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	timeout := config.PingTimeout
	var uses, dead atomic.Int64
	note := func(conn *pgx.Conn) (before *use) {
		data := conn.PgConn().CustomData()
		before, _ = data[lastUse].(*use)
		data[lastUse] = &use{at: now().Round(0), order: uses.Add(1)} // without the monotonic part
		return before
	}

	// If the caller leaves before the connection is made, it goes to the pool unused.
	afterConnect := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		note(conn)
		if afterConnect == nil {
			return nil
		}
		return afterConnect(ctx, conn)
	}

	// The use is noted when a connection is taken, not when it is released: for AfterRelease pgxpool
	// starts a goroutine each time, which a freeze can delay. A use takes milliseconds; a long one
	// costs an unnecessary ping.
	shouldPing := config.ShouldPing
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		before := note(p.Conn)
		switch {
		case before != nil && before.order <= dead.Load():
			// One that was used after it has died. Pinging each one would take too long.
			_ = p.Conn.PgConn().Conn().Close()
			return true // the pool's ping fails at once, and it drops the connection
		case before == nil || before.mayBeDead(now(), p.IdleDuration):
			answered, silent := alive(ctx, p.Conn, timeout)
			if silent && before != nil {
				dead.Store(before.order)
			}
			if !answered {
				return true
			}
		}
		return shouldPing != nil && shouldPing(ctx, p)
	}
}

// mayBeDead reports whether a connection may have died since it was used.
func (u *use) mayBeDead(now time.Time, idle time.Duration) bool {
	rest := now.Round(0).Sub(u.at)
	return rest < 0 || max(rest, idle) > maxIdle
}

// pingGrace is how long a ping continues after its caller has left. A working server answers in
// that time, and the caller learns of its deadline at most that much late.
const pingGrace = 25 * time.Millisecond

// alive pings conn and closes it unless it answers. It reports whether conn answered, and otherwise
// whether it was silent for all of timeout. The pool's own ping leaves closing to pgx, which waits
// up to 15 s for a silent peer; a pool of one connection would be blocked for that time.
func alive(ctx context.Context, conn *pgx.Conn, timeout time.Duration) (answered, silent bool) {
	// A caller who leaves must not break a connection that works.
	ping, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(pingGrace, cancel) })()
	if err := conn.Ping(ping); err != nil {
		_ = conn.PgConn().Conn().Close()
		return false, errors.Is(ping.Err(), context.DeadlineExceeded)
	}
	return true, false
}
