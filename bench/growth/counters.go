package main

import (
	"context"
	"fmt"
	"time"
)

// counters are what PostgreSQL counted of a table, and its size.
type counters struct {
	updates, hot      int64
	dead, vacuums     int64
	table, primaryKey int64 // bytes
}

// hotShare returns how many of the updates since earlier were HOT.
func (c counters) hotShare(earlier counters) string {
	return percent(c.hot-earlier.hot, c.updates-earlier.updates)
}

// counters closes the table's pool, for a session reports its last counts when it ends, and makes
// another.
func (t *table) counters(ctx context.Context) (c counters, err error) {
	connections := int(t.pool.Config().MaxConns)
	sessions := make([]uint32, 0, connections)
	for _, conn := range t.pool.AcquireAllIdle(ctx) {
		sessions = append(sessions, conn.Conn().PgConn().PID())
		conn.Release()
	}
	t.pool.Close()
	if err := t.bench.ended(ctx, sessions); err != nil {
		return c, err
	}
	err = t.bench.Pool.QueryRow(ctx, `
		SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, autovacuum_count, pg_relation_size(relid), pg_indexes_size(relid)
		FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'limiter_token_buckets'`, t.schema).
		Scan(&c.updates, &c.hot, &c.dead, &c.vacuums, &c.table, &c.primaryKey)
	if err != nil {
		return c, err
	}
	return c, t.connect(ctx, connections)
}

// ended waits until sessions are over.
func (b *bench) ended(ctx context.Context, sessions []uint32) error {
	pids := make([]int32, len(sessions))
	for i, pid := range sessions {
		pids[i] = int32(pid)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var left int
		err := b.Pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)", pids).Scan(&left)
		if err != nil {
			return fmt.Errorf("sessions that were closed go on: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
