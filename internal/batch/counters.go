package batch

import (
	"sync/atomic"

	"github.com/sqlimit/limiter"
)

// Counters counts what a store sends, by its queues and without them. Except for Answers, its fields are those of
// [limiter.StoreStats]. The zero Counters is ready for use, and safe for concurrent use.
type Counters struct {
	Statements, Rows, Units, Retries, SecondLooks, Queued, ConnectionsLost atomic.Int64

	// Answers counts the keys of answered statements, and SQLite's commits. Errors do not count.
	Answers atomic.Uint64
}

// Sent counts a statement for so many rows and operations.
func (c *Counters) Sent(rows, units int) {
	c.Statements.Add(1)
	c.Rows.Add(int64(rows))
	c.Units.Add(int64(units))
}

// Stats returns the counters. Those of the breaker are left at zero.
func (c *Counters) Stats() limiter.StoreStats {
	return limiter.StoreStats{
		Statements: c.Statements.Load(), Rows: c.Rows.Load(), Units: c.Units.Load(),
		Retries: c.Retries.Load(), SecondLooks: c.SecondLooks.Load(), Queued: c.Queued.Load(),
		ConnectionsLost: c.ConnectionsLost.Load(),
	}
}
