package grpclimiter

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
)

// refunder is a limiter with the method that ChargeFailures needs.
type refunder interface {
	RefundOf(ctx context.Context, key string, n int64, res limiter.Result) (bool, error)
}

// giveBack refunds the charge of a call that succeeded, even if its caller has left. It keeps the
// call's deadline, because the status is sent after it. took is how long the call ran. After
// ResetAfter the charge has expired, and a refund would credit what other calls were charged since.
func (i *Interceptor) giveBack(ctx context.Context, call Call, d *decision, took time.Duration) {
	if !i.chargeFailures || d == nil {
		return
	}
	outer := ctx
	ctx = context.WithoutCancel(ctx)
	if deadline, ok := outer.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for n := range d.parts {
		p := &d.parts[n]
		if p.cost == 0 || took >= p.result.ResetAfter {
			continue
		}
		if _, err := p.rule.refunds.RefundOf(ctx, p.key, p.cost, p.result); err != nil {
			i.report(outer, call, err)
		}
	}
}
