package limiter_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestConcurrency(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	c, err := limiter.NewConcurrency(memory.New(), "exports", limiter.InFlight{Limit: 2, Hold: time.Minute},
		limiter.WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.TryAcquire(t.Context(), "k")
	if err != nil || !first.Allowed || first.Used != 1 || first.Remaining != 1 || first.ResetAfter != time.Minute || first.Length != time.Minute {
		t.Fatalf("%+v, %v", first, err)
	}
}
