package borrow

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

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
