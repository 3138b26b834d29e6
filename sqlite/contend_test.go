package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Operations that meet are read and decided before their transaction needs the write lock. Another
// connection can take the lock in between, or write.
func TestOperationsThatMeetWaitForTheLockOnlyIfTheyWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, begin, end string // statements of the other connection
		waiting          int    // how many takes wait until the end
	}{
		{"another connection has the lock", "BEGIN IMMEDIATE", "COMMIT", 10},
		{"another connection has written", "INSERT INTO limiter_token_buckets VALUES ('other', x'00', 0, 0, 1000, 1, 1)", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "met.db")
			synctest.Test(t, func(t *testing.T) {
				store := openPath(t, path)
				if _, err := store.Do(t.Context(), takeOf("l", "used", slow, slow.Capacity)); err != nil {
					t.Fatal(err)
				}
				other, err := store.DB().Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				run := func(query string) {
					if _, err := other.ExecContext(t.Context(), query); err != nil {
						t.Error(err)
					}
				}

				// The clock is read between reading and writing. The first caller stays there, so that the
				// others wait. The second is carried out alone. Those behind it share a transaction.
				first := make(chan struct{})
				var readings, granted, refused atomic.Int64
				store.SetClock(func() time.Time {
					switch readings.Add(1) {
					case 1:
						<-first
					case 3:
						run(c.begin)
					}
					return t0
				})
				var all sync.WaitGroup
				ask := func(key string) {
					op := takeOf("l", key, slow, 1)
					op.At = 0
					all.Go(func() {
						state, err := store.Do(t.Context(), op)
						switch {
						case err != nil:
							t.Error(err)
						case state.Took:
							granted.Add(1)
						default:
							refused.Add(1)
						}
					})
					synctest.Wait()
				}
				for i := range 12 {
					ask(fmt.Sprint("key ", i))
				}
				ask("used")
				close(first)
				synctest.Wait()
				ask("used") // while the others wait
				if granted.Load() != int64(12-c.waiting) || refused.Load() != 2 {
					t.Errorf("%d granted, %d refused; want all but %d granted, and 2 refused", granted.Load(), refused.Load(), c.waiting)
				}
				run(c.end)
				all.Wait()
				if granted.Load() != 12 {
					t.Errorf("%d of 12 granted at the end", granted.Load())
				}
			})
		})
	}
}
