package batch

import (
	"sync/atomic"

	"github.com/sqlimit/limiter"
)

// Counters counts what a store sends, by its queues and without them. Its fields are those of
// [limiter.StoreStats]. The zero Counters is ready for use, and safe for concurrent use.
type Counters struct {
	Statements, Rows, Units, Retries, SecondLooks, Queued, ConnectionsLost atomic.Int64

	outcomes outcomes
}

// Answered notes that the store has answered a statement, or committed. An error is no answer.
func (c *Counters) Answered() { c.outcomes.record(true) }

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
