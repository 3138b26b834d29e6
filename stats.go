package limiter

// StoreStats counts what a store has done since it was made. Packages postgres and sqlite return it
// from the method Stats of their stores; package otellimiter makes metrics of it. The counters are
// of this store in this process only. Those of one StoreStats are read one after another, so they
// may differ by the operations in flight. Sweep, Check and Overrides are not counted, except by
// ConnectionsLost.
//
// The zero StoreStats is that of a store that has not been used.
type StoreStats struct {
	// Statements is how many statements the store sent to decide operations, also those that failed.
	// Operations that share a statement count it once. If a statement needs others beside it, such as
	// those of a transaction or of a second look, they are not counted. SQLite sends transactions and
	// reads instead.
	Statements int64
	// Rows is how many rows these statements were for: one for each key. Rows / Statements is how
	// many keys share a statement on average.
	Rows int64
	// Units is how many operations these statements carried: takes, and also peeks, charges and
	// refunds. Each limit of AllowAll is one. Units / Statements is how many operations share a
	// statement on average.
	Units int64
	// Retries is how many operations the store sent again after a failure. It retries only operations
	// that were certainly not applied.
	Retries int64
	// SecondLooks is how many operations their statement did not decide, so that the store needed
	// another one. Examples: the row has another policy, is ahead of the clock, or is missing for
	// AllowAll.
	SecondLooks int64
	// Queued is how many operations wait to be sent now: for others of the same key, for a statement
	// that they can share, or for a connection. It is a gauge: it also falls.
	Queued int64
	// BreakerOpen reports whether the store does not send most operations now, because the database
	// does not answer for one key or for all.
	BreakerOpen bool
	// BreakerOpenings is how often BreakerOpen became true.
	BreakerOpenings int64
	// ConnectionsLost is how many connections of a pool broke while the store used them, or were
	// given up because no answer came in time. Failures to connect are not counted, nor are
	// connections that broke while idle. It is 0 for a SQLite database that was passed to New.
	ConnectionsLost int64
}
