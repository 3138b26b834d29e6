package borrow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// The second statement has ended before the first one.
func TestResetWaitsForAllRefunds(t *testing.T) {
	run(t, "of what was set aside and what was borrowed", 1000, func(f *fixture) {
		f.hold()
		release := f.block(limiter.OpTakeUpTo)
		own, first := f.ask(f.Context(), 4), make(chan error)
		<-time.After(ttl)
		f.inner.before = func(op limiter.Op) error {
			if op.Kind == limiter.OpRefund && op.Cost == 3 {
				return <-first
			}
			return nil
		}
		release(nil)
		f.granted(own)
		f.sent()
		go func() { testenv.Must(f, f.l.Reset(f.Context(), "k")) }()
		synctest.Wait()
		f.sends()
		first <- nil
		synctest.Wait()
		f.sends(op(limiter.OpReset, 0))
	})
}

// A Reset frees all tokens. What was given back after it would be free a second time.
func TestResetComesAfterRefunds(t *testing.T) {
	for name, begin := range map[string]func(f *fixture){
		"of a key that others displace": func(f *fixture) {
			sh := f.store.shardOf(&limiter.Op{Name: "test", Key: "k"})
			sh.mu.Lock()
			defer sh.mu.Unlock()
			for i := range maxHoldings/shards + 1 {
				f.store.entry(sh, &limiter.Op{Name: "test", Key: fmt.Sprint(i)}, f.store.clocks())
			}
		},
		"of Shutdown": func(f *fixture) { go func() { testenv.Must(f, f.store.Shutdown(f.Context())) }() },
	} {
		run(t, name, 1000, func(f *fixture) {
			f.hold()
			release := f.block(limiter.OpRefund)
			begin(f)
			synctest.Wait()
			go func() { testenv.Must(f, f.l.Reset(f.Context(), "k")) }()
			synctest.Wait()
			f.sends(op(limiter.OpRefund, 3))
			release(nil)
			f.sends(op(limiter.OpReset, 0))
			f.state(0, 0)
		})
	}
}
