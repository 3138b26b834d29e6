// Package borrow takes tokens of busy keys ahead and spends them in memory.
//
// A [Store] stands between limiters and another store. When a process sees a token bucket's key four times
// within the ttl, it takes several tokens by one statement, and later takes need no statement. Use it where
// one process decides thousands of requests a second on few keys, as an API gateway does:
//
//	fast, err := borrow.New(store, 1000, 100*time.Millisecond)
//	// ...
//	requests, err := limiter.New(fast, "requests", limiter.PerSecond(50_000))
//
// It is of no use for keys that a process sees fewer than four times within the ttl, for buckets of fewer
// than 16 tokens, and for windows. Their takes go to the store as before. Make the ttl at least ten times the
// round trip of the store.
//
// # What it gives up
//
//   - Up to n tokens of a key in each process, and those that it was giving back, are lost if the process
//     stops or freezes, or if it sees no more requests of the key. They come back as the bucket refills.
//     [Store.Shutdown] gives them back.
//   - While one process holds tokens, another may be refused. While a process takes tokens ahead, takes of its
//     own may be refused that go to the store at the same time.
//   - A copy of a process, as of a virtual machine, may spend what it holds once more if it continues within
//     the ttl.
//   - A Block, Reset, Charge or change of policy by another process takes effect within the ttl.
//   - Remaining, RetryAfter and ResetAfter are those of the moment when the tokens were charged, moved on
//     by the process's clock. If tokens expire meanwhile, a take may be refused again after RetryAfter.
//   - If the store fails, a process still grants what it holds, for the ttl at most.
//   - An operation first waits until its key's tokens are given back. So it may take twice the time of
//     [limiter.WithTimeout]. It ends at its context's deadline, not 100 ms before. A failure policy applies
//     even if the deadline leaves less than the time limit.
//
// A Refund, Reset, Charge, Block or Cancel of the same process takes effect at once: it ends what the process
// holds of the key. So do requests of another policy. A key with many of them gains little.
//
// # Around it
//
// A program has one [Store] for each store, and keeps the inner store for Sweep, Check, Stats and Close.
// AllowAll needs limiters that are all on the inner store or all on the Store. AllowAll, AllowUpTo, Peek,
// Reserve and Wait count borrowed tokens as taken, and spend none of them. Limiter.On with a transaction
// bypasses the Store, and counts as another process. Observers, deny caches and failure policies work as on
// any store.
package borrow
