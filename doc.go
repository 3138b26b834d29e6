// Package limiter limits how often a key (a user, an address, an API key) may do something. The
// state lives in PostgreSQL or SQLite, so all processes of an application share it.
//
// Use it where a process keeps no memory between requests (AWS Lambda, Cloud Run, jobs), or where
// several processes share a limit, and the application already has a SQL database. If one process
// serves all requests, golang.org/x/time/rate is enough.
//
//	store, err := postgres.New(pool) // or sqlite.Open("app.db")
//	...
//	logins, err := limiter.New(store, "login", limiter.TokenBucket{
//		Capacity: 5, Refill: 1, Interval: time.Minute,
//	})
//	...
//	res, err := logins.Allow(ctx, email)
//	switch {
//	case err != nil: // no decision was made
//	case !res.Allowed: // try again after res.RetryAfter
//	}
//
// # Policies
//
// A [TokenBucket] allows a burst and then a steady rate. Use it unless a contract says "n per
// day". A [FixedWindow] counts requests per aligned window, and a [CalendarWindow] per period of the
// calendar. A [SlidingWindow] allows at most n in any span of time of its length.
//
// A [Concurrency] limits how many requests of a key are in flight at a time, by an [InFlight]. Make one with
// [NewConcurrency].
//
// # Decisions
//
// [Limiter.Allow] and [Limiter.AllowN] decide at once, and [Limiter.AllowUpTo] takes as much as there
// is room for. [Limiter.Peek] and [Limiter.PeekN] read without charging. [Limiter.Reserve] books a turn
// ahead, and [Limiter.Wait] sleeps until its turn. [AllowAll] takes from several limits or from none, and
// [CheckAll] checks when the program starts whether they fit together.
//
// [Limiter.Charge] charges a cost that is known only afterwards. [Limiter.Refund] and
// [Limiter.RefundOf] give back what was taken. [Limiter.Block] refuses all requests of a key for a
// time, and [Limiter.Reset] makes a key unused.
//
// [WithPolicyFor] chooses the policy of each request, by plan for example. Package
// [github.com/sqlimit/limiter/overrides] reads the policies of single keys from a table.
// [Limiter.On] puts a Limiter on another store, such as one on a transaction. Package
// [github.com/sqlimit/limiter/handler] limits HTTP handlers.
//
// A decision is usually one round trip to the database. It takes more if the policy has changed, if
// a clock was stepped back, if other processes change the same key, or if different operations
// wait for the key. Concurrent callers in any number of processes admit exactly what the policy
// admits.
//
// # Tables
//
// The SQL stores create no tables. Call migrations.Up, or run the goose command line, when you
// deploy. Without tables every decision fails with [ErrMisconfigured].
//
// # Clock
//
// The store's clock decides. In PostgreSQL that is the server's clock, so the clocks of application
// machines do not matter. A clock that is stepped back grants nothing. A key then waits at most as
// long as it had to wait before the step, or one window, plus 2 s.
//
// # Failure
//
// A store fails if it does not answer within [WithTimeout]. [FailClosed], the default, then refuses
// the request, [FailOpen] lets it pass, and [FailLocal] asks another store. While a database keeps
// failing, the store sends it a request only now and then; all others fail within microseconds.
//
// The error classes say whether a request was charged: see [ErrNotApplied] and
// [ErrOutcomeUnknown]. An observer sees every operation and every failure: see [WithObserver].
//
// # Serverless
//
// A Limiter is a small struct and runs nothing in the background. Nothing is lost when a process
// is frozen or killed between two requests.
package limiter
