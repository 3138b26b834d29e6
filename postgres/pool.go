package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
)

// acquire returns a connection of the pool. If it fails, nothing was sent.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	pool, err := s.openPool(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, s.interpretError(ctx, read, err)
	}
	return conn, nil
}

// usedBefore is the key in CustomData of a connection that this package has used before.
const usedBefore = "github.com/sqlimit/limiter/postgres: used before"

// fresh reports whether conn is used for the first time. Then the caller waited until it was
// made.
func fresh(conn *pgxpool.Conn) bool {
	data := conn.Conn().PgConn().CustomData()
	_, known := data[usedBefore]
	if !known {
		data[usedBefore] = true
	}
	return !known
}

// cleanupWait is how long a broken connection stays in its pool. It is less than
// limiter.DefaultTimeout, so that the next operation can still make a new one.
const cleanupWait = 100 * time.Millisecond

// release returns a connection to its pool. If pgx has given the connection up, because an answer
// did not come in time, pgx asks the server to cancel the statement and waits until the server
// closes the connection. That takes a few round trips, but 15 s if the peer is silent. After 100 ms
// release takes such a connection out of the pool, and pgx closes it later. See DESIGN.md, "A
// broken connection leaves the pool after 100 ms".
func (s *Store) release(conn *pgxpool.Conn) {
	pg := conn.Conn().PgConn()
	if !pg.IsClosed() {
		conn.Release()
		return
	}
	s.counters.ConnectionsLost.Add(1)
	go func() {
		timer := time.NewTimer(cleanupWait)
		defer timer.Stop()
		select {
		case <-pg.CleanupDone():
			conn.Release()
		case <-timer.C:
			conn.Hijack()
		}
	}()
}

// closeIdle closes the idle connections of the pool. If the server ended the session that was used
// last, it has ended those as well, and each would fail one more operation.
func (s *Store) closeIdle(ctx context.Context) {
	pool, err := s.openPool(ctx)
	if err != nil {
		return
	}
	for _, conn := range pool.AcquireAllIdle(ctx) {
		_ = conn.Conn().Close(ctx)
		conn.Release()
	}
}

// openPool returns the pool, which it makes at the first call after [Open].
func (s *Store) openPool(ctx context.Context) (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: the store is closed", limiter.ErrNotApplied)
	}
	if s.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), s.config)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", limiter.ErrMisconfigured, err)
		}
		s.pool = pool
	}
	return s.pool, nil
}

// stat returns the statistics of the pool, nil before the first decision and after Close.
func (s *Store) stat() *pgxpool.Stat {
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	if pool == nil {
		return nil
	}
	return pool.Stat()
}

// maxConns returns the size of the pool, 0 without one.
func (s *Store) maxConns() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pool != nil:
		return s.pool.Config().MaxConns
	case s.config != nil:
		return s.config.MaxConns
	}
	return 0
}

// dialing reports whether a connection of the pool is being made.
func (s *Store) dialing() bool {
	stat := s.stat()
	return stat != nil && stat.ConstructingConns() > 0
}

// waitReason returns why an operation has no connection, if the pool has none to give.
func (s *Store) waitReason() string {
	stat := s.stat()
	if stat == nil || stat.AcquiredConns() < stat.MaxConns() {
		return ""
	}
	return fmt.Sprintf("all %d connections of the pool are in use; if the application holds them, "+
		"raise pool_max_conns or give the limiter a pool of its own", stat.MaxConns())
}
