package borrow_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/borrow"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

func open(t *testing.T, inner limiter.Store) *borrow.Store {
	t.Helper()
	s, err := borrow.New(inner, 2, time.Second)
	testenv.Must(t, err)
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) limiter.Store { return open(t, memory.New()) })
	storetest.RunClock(t, func(t *testing.T) (limiter.Store, func(time.Duration)) {
		var ahead atomic.Int64
		inner := memory.New(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
		return open(t, inner), func(d time.Duration) { ahead.Store(int64(d)) }
	})
}
