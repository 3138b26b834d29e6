package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// farewell is for how long a connection that was given up counts in its pool: less than
// limiter.DefaultTimeout, so that the next operation can still make another one.
const farewell = 100 * time.Millisecond

// release gives a connection back to its pool. When pgx has given one up, because an
// answer did not come in time, it asks the server to cancel the statement and waits until
// the server ends the connection: that takes a few round trips, but 15 s if the peer has
// gone without a word. A pool of one connection, as it is in a function of Lambda, would be
// of no use for so long. It forgets such a connection, which then ends by itself.
func release(conn *pgxpool.Conn) {
	pg := conn.Conn().PgConn()
	if !pg.IsClosed() {
		conn.Release()
		return
	}
	go func() {
		timer := time.NewTimer(farewell)
		defer timer.Stop()
		select {
		case <-pg.CleanupDone():
			conn.Release()
		case <-timer.C:
			conn.Hijack()
		}
	}()
}

// closeIdle closes the idle connections of the pool. A session that the server ended was
// used later than those: it has ended them, too, and each would fail one more operation.
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
