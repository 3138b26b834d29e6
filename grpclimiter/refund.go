package grpclimiter

import (
	"context"
	"time"

	"github.com/sqlimit/limiter/middleware"
)

// giveBack refunds the cost of a call that succeeded after it ran for took.
func (i *Interceptor) giveBack(ctx context.Context, call Call, d *middleware.Decision, took time.Duration) {
	if !i.chargeFailures || d == nil {
		return
	}
	for _, err := range d.GiveBack(ctx, took) {
		i.report(ctx, call, err)
	}
}
