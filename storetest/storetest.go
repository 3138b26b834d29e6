package storetest

import (
	"testing"

	"github.com/sqlimit/limiter"
)

func Run(t *testing.T, open func(t *testing.T) limiter.Store) {
	t.Run("vectors", func(t *testing.T) { runVectors(t, open) })
}
