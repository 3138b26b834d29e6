// Package postgres stores the state of limiters in PostgreSQL 15 or later, through pgx v5.
//
// Use it when several processes or hosts share a limit, for example on AWS Lambda or Cloud Run. A
// decision is usually one statement and one round trip. The store needs no function, trigger,
// extension or session state, so it works behind any pooler. The server's clock decides.
//
// [Open] makes a store with a connection pool of its own. [New] uses the application's pool,
// connection or transaction.
//
// # Tables and privileges
//
// Package migrations creates the tables. The application's role needs SELECT, INSERT and UPDATE on
// the four tables of state, and SELECT on limiter_overrides. [Store.Sweep] also needs DELETE. With SELECT
// on goose's own table, [Store.Check] compares its version:
//
//	GRANT SELECT, INSERT, UPDATE ON limiter_token_buckets, limiter_fixed_windows, limiter_leases,
//	    limiter_sliding_windows TO app;
//	GRANT SELECT ON limiter_goose_version, limiter_overrides TO app;
//	GRANT DELETE ON limiter_token_buckets, limiter_fixed_windows, limiter_leases, limiter_sliding_windows
//	    TO sweeper;
//
// # Poolers
//
// The store uses the connection's query mode, which is cache_statement by default. PgBouncer before
// 1.21, and some other poolers in transaction mode, keep no prepared statements. Behind them, pass
// [WithQueryExecMode] with [pgx.QueryExecModeExec], or add default_query_exec_mode=exec to the DSN.
// The store never uses the simple protocol for statements that decide. Do not use describe_exec
// behind a pooler in transaction mode: pgx parses and executes a statement in two round trips, which
// may go to two servers. docs/operations.md lists what a pooler must do.
//
// # Pools
//
// The store can share a pool with the application. The wait for a connection counts against
// [limiter.WithTimeout]. If the application holds all connections, decisions fail although the
// database works, and the error says that all connections of the pool are in use. Raise
// pool_max_conns then, or give the limiter its own pool with [Open].
//
// # Transactions
//
// On a [pgx.Tx], or on a connection in a transaction, a take is part of that transaction:
//
//   - A rollback undoes the take.
//   - The key's row stays locked until the transaction ends, and all other users of the key wait.
//     Past their time limit they fail, and [limiter.FailOpen] and [limiter.FailLocal] apply to
//     them. Take as late as possible, and use [limiter.FailClosed] for limiters of the same name.
//   - [limiter.WithTimeout] has no effect. Give the context a deadline.
//   - An error that PostgreSQL reports for a take aborts the transaction: later statements fail with
//     SQLSTATE 25P02. So the store always returns its error, and [limiter.FailOpen] and
//     [limiter.FailLocal] have no effect. Roll back. If the error matches [limiter.ErrNotApplied],
//     run the whole transaction again.
//   - Take keys in the same order in all transactions, for example by limiter and key. Two
//     transactions that take the same keys in opposite order deadlock, and PostgreSQL fails one of
//     them with SQLSTATE 40P01.
//   - In REPEATABLE READ and SERIALIZABLE, the transaction's snapshot may refuse a take, or the take
//     may fail with SQLSTATE 40001. It never admits too much.
package postgres
