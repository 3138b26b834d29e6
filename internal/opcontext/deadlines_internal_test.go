package opcontext

import (
	"context"
	"testing"
	"time"
)

func TestEndedOperationIsNotKept(t *testing.T) {
	t.Parallel()
	var d Deadlines
	ctx, stop := d.WithTimeout(context.Background(), time.Hour)
	_ = ctx.Done() // as a caller that waits
	if len(d.byDue) != 1 {
		t.Fatalf("%d operations are scheduled, want 1", len(d.byDue))
	}
	if stop(); len(d.byDue) != 0 {
		t.Errorf("%d operations are scheduled after it ended", len(d.byDue))
	}
}
