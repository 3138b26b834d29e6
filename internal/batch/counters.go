package batch

import (
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

// Counters counts what a store sends, by its queues and without them. Its fields are those of
// [limiter.StoreStats]. The zero Counters is ready for use, and safe for concurrent use.
type Counters struct {
	Statements, Rows, Units, Retries, SecondLooks, Queued, ConnectionsLost atomic.Int64

	answered atomic.Int64 // when the store last answered a statement
}

// epoch is where this package's times begin. It is long before the process began, so that 0 means never, also in a
// testing/synctest bubble, which begins in 2000.
var epoch = time.Now().Add(-1 << 60)

// Answered notes that the store has answered a statement, or committed. An error is no answer.
func (c *Counters) Answered() { c.answered.Store(int64(time.Since(epoch))) }

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
