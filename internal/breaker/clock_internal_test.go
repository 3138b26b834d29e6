package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

func TestProbeAfterAClockStep(t *testing.T) {
	t.Parallel()
	var b Breaker
	for i := range openAfter {
		op := limiter.Op{Key: fmt.Sprint(i)}
		pass, err := b.Enter(t.Context(), &op)
		if err != nil {
			t.Fatal(err)
		}
		pass.Leave(limiter.ErrNotApplied, &op)
	}
	b.last = time.Now().Round(0).Add(time.Hour)
	if _, err := b.Enter(t.Context(), &limiter.Op{}); err != nil {
		t.Errorf("the first operation: %v, want it let through", err)
	}
	if _, err := b.Enter(t.Context(), &limiter.Op{}); err == nil {
		t.Error("the second operation was also let through")
	}
}
