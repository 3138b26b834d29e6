package sqlite_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/sqlite"
)

// locked is SQLITE_BUSY.
type locked struct{ error }

func (locked) Code() int { return 5 }

func TestTimeUsedUpInTheProcessIsNotTheDatabasesFailure(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"in a queue of the process": true, "behind a lock": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := new(opcontext.Deadlines).WithTimeout(t.Context(), 10*time.Millisecond)
				defer stop()
				if busy {
					<-ctx.Done()
				}
				calls := 0
				err := sqlite.Attempt(ctx, func(context.Context) error {
					calls++
					return locked{errors.New("database is locked")}
				})
				if errors.Is(err, limiter.ErrKeyBusy) != busy || limiter.StoreFailed(err) == busy || !errors.Is(err, limiter.ErrNotApplied) {
					t.Errorf("%v; want ErrNotApplied, and ErrKeyBusy: %t", err, busy)
				}
				if (calls == 0) != busy {
					t.Errorf("the database was asked %d times", calls)
				}
			})
		})
	}
}
