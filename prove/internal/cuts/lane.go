// Package cuts does operations on connections that are cut, and finds out what became of
// them.
package cuts

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

const (
	// limit is the time limit of the operations, and of the making of their connections:
	// they end long before, but on a machine that is busy with something else.
	limit = 30 * time.Second
	// never is the time of a token that does not come back before a test is over.
	never = 240 * time.Hour
)

// Lane does one kind of operation in one mode again and again, on one connection
// through a proxy that cuts it. It is for one goroutine.
type Lane struct {
	mode  Mode
	kind  Kind
	name  string // of its limiters
	proxy *cutproxy.Proxy
	pool  *pgxpool.Pool
	db    *pgx.Conn // past the proxy

	bucket, wider, tight, line   *limiter.Limiter // of buckets
	window, narrow, counts, rota *limiter.Limiter // of windows

	serial   int
	keys     []string             // of the operation that is next
	booked   *limiter.Reservation // by its setup
	dial     [2]int64             // bytes of the making of a connection
	unheeded bool                 // the connection was cut, and nobody knows it yet
}

// NewLane returns a Lane to the server of dsn, whose tables are there. Its limiters have
// names of their own in that database. It ends with the test, or with Close.
func NewLane(t testing.TB, dsn string, mode Mode, kind Kind) (*Lane, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	w := &Lane{mode: mode, kind: kind, name: fmt.Sprint(mode.Name, "/", kind.number)}
	conn := config.ConnConfig
	w.proxy = cutproxy.New(t, net.JoinHostPort(conn.Host, strconv.Itoa(int(conn.Port))))
	conn.Host, conn.Port = "127.0.0.1", w.proxy.Port()
	conn.ConnectTimeout = limit
	conn.DefaultQueryExecMode = mode.pool
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // its bytes would be counted
	if kind.strict {
		conn.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	}
	if w.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config); err != nil {
		return nil, err
	}
	t.Cleanup(w.pool.Close)
	store, err := postgres.New(w.pool, mode.opts...)
	if err != nil {
		return nil, err
	}
	if err := w.makeLimiters(store); err != nil {
		return nil, err
	}
	if w.db, err = pgx.Connect(t.Context(), dsn); err != nil {
		return nil, err
	}
	t.Cleanup(w.Close)
	if kind.strict {
		err = w.makeStrict(t.Context())
	}
	return w, err
}

func (w *Lane) makeLimiters(store limiter.Store) (err error) {
	// At a time of its own none of its windows ends.
	noon := func() time.Time { return time.Date(2026, 6, 1, 12, 30, 0, 0, time.UTC) }
	for _, l := range []struct {
		to     **limiter.Limiter
		policy limiter.Policy
		opts   []limiter.Option
	}{
		{&w.bucket, limiter.TokenBucket{Capacity: 1000, Refill: 1, Interval: never}, nil},
		{&w.wider, limiter.TokenBucket{Capacity: 1001, Refill: 1, Interval: never}, nil},
		{&w.tight, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: never}, nil},
		{&w.line, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 30 * time.Minute}, nil},
		{&w.window, limiter.FixedWindow{Limit: 1000, Window: 100 * never}, nil},
		{&w.narrow, limiter.FixedWindow{Limit: 1, Window: 100 * never}, nil},
		{&w.counts, limiter.FixedWindow{Limit: 1000, Window: 100 * never, CountRejected: true}, nil},
		{&w.rota, limiter.FixedWindow{Limit: 1, Window: time.Hour}, []limiter.Option{limiter.WithClock(noon)}},
	} {
		if *l.to, err = limiter.New(store, w.name, l.policy, append(l.opts, limiter.WithTimeout(limit))...); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the Lane's connections.
func (w *Lane) Close() {
	w.pool.Close()
	_ = w.db.Close(context.Background())
}

// next makes new keys, of the same length as those before.
func (w *Lane) next() {
	w.serial++
	w.keys = w.keys[:0]
	for i := range 3 {
		w.keys = append(w.keys, fmt.Sprintf("%08d%c", w.serial, 'a'+i))
	}
}

// ready makes all ready for the operation.
func (w *Lane) ready() error {
	w.next()
	if w.unheeded {
		w.unheeded = false
		// Who comes first finds out that the connection has gone.
		if _, err := w.bucket.Peek(context.Background(), "whoever"); err != nil && outcome.Of(false, err) != outcome.NotApplied {
			return err
		}
	}
	if w.kind.setup == nil {
		return nil
	}
	return w.kind.setup(w)
}

// act does the operation.
func (w *Lane) act() []answer {
	if w.kind.Fresh {
		w.pool.Reset()
	}
	return w.kind.act(w)
}
