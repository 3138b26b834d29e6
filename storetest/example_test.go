package storetest_test

import (
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

// openStore returns an empty store. A store on a database closes it with t.Cleanup.
func openStore(*testing.T) limiter.Store { return memory.New() }

// In the test file of a store.
func ExampleRun() {
	testStore := func(t *testing.T) { // func TestStore(t *testing.T)
		storetest.Run(t, openStore)
	}
	_ = testStore
}
