package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

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
