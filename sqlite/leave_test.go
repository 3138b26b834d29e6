package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
)

// Without WAL the commit waits for those who read. Here it does so until one of its callers has left.
func TestASharedTransactionEndsForNobodyWhoLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, openPool(t, ""))
		reader, err := store.DB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		for _, query := range []string{"BEGIN", "SELECT count(*) FROM limiter_token_buckets"} {
			if _, err := reader.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}

		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		left := make(chan error, 1)
		var all sync.WaitGroup
		for _, op := range ahead { // they give up, and the others go together
			op.Timeout = 20 * time.Millisecond
			all.Go(func() {
				if _, err := store.Do(t.Context(), op); !errors.Is(err, limiter.ErrNotApplied) {
					t.Errorf("a take beside a reader: %v, want ErrNotApplied", err)
				}
			})
			synctest.Wait()
		}
		leaves := takeOf("l", "leaves", slow, 1)
		go func() {
			_, err := store.Do(ctx, leaves)
			left <- err
		}()
		synctest.Wait() // it is the first of those that go together
		for i := range 5 {
			all.Go(func() {
				if s, err := store.Do(t.Context(), takeOf("l", fmt.Sprint("stays ", i), slow, 1)); err != nil || !s.Took {
					t.Errorf("a take that stayed: granted %v, %v", s.Took, err)
				}
			})
		}
		<-time.After(100 * time.Millisecond)
		leave()
		if err := <-left; !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, limiter.ErrOutcomeUnknown) {
			t.Errorf("the one that left: %v, want ErrCanceled and ErrOutcomeUnknown", err)
		}
		if _, err := reader.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if n := used(read(t, store, leaves), leaves); n != 1 {
			t.Errorf("the one that left was charged %d, want 1", n)
		}
	})
}
