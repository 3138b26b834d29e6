package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestProbeAfterAClockStep(t *testing.T) {
	t.Parallel()
	var b Breaker
	for i := range openAfter {
		op := limiter.Op{Key: fmt.Sprint(i)}
		pass, err := b.Enter(t.Context(), &op)
		testenv.Must(t, err)
		pass.Leave(limiter.ErrNotApplied, &op)
	}
	b.last = time.Now().Round(0).Add(time.Hour)
	testenv.Equal(t, testenv.ErrorOf(b.Enter(t.Context(), &limiter.Op{})), nil, "the first operation")
	if _, err := b.Enter(t.Context(), &limiter.Op{}); err == nil {
		t.Error("the second operation was also let through")
	}
}
