package storetest_test

import (
	"testing"

	"github.com/sqlimit/limiter/storetest"
)

func TestTheStoreOfTheExamplePasses(t *testing.T) {
	storetest.Run(t, openStore)
}
