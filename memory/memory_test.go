package memory_test

import (
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) limiter.Store { return memory.New() })
}
