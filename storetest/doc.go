// Package storetest tests a [limiter.Store].
//
// Use it if you write a store of your own. Every store of this module passes these tests. A store
// is correct if it returns and writes what [limiter.Op.Apply] says.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) limiter.Store {
//			db := openDatabase(t) // empty, closed by t.Cleanup
//			return mystore.New(db)
//		})
//	}
//
//	func BenchmarkStore(b *testing.B) {
//		storetest.Bench(b, func(b *testing.B) limiter.Store { ... })
//	}
//
// A store that fails a test breaks the requirement that is printed with the failure. A store that
// passes all of them may still have faults: the tests find no races that need more load, no faults of
// connections and servers, and nothing that happens only after days.
//
// No test sleeps. Nearly all of them set the time, as with [limiter.WithClock], and are exact to the
// nanosecond. A few read the store's own clock. A random test prints its seed when it fails; set the
// environment variable STORETEST_SEED to repeat it.
package storetest
