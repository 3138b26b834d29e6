package prove_test

import (
	"context"
	"time"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// lostRefunds is what was said to be given back, and was not.
const lostRefunds = "acknowledged refunds lost"

// told is what a function was told of a key.
type told struct {
	charged, perhapsCharged int64
	back, perhapsBack       int64
	calls                   int64
}

// note enters an answer, and reports whether it is one that the call can have.
func (d *told) note(call, class string) bool {
	d.calls++
	certain, perhaps := &d.charged, &d.perhapsCharged
	switch call {
	case peek: // it changes nothing, and so has no outcome that nobody knows
		return class == outcome.Carried || class == outcome.NotApplied
	case refund:
		certain, perhaps = &d.back, &d.perhapsBack
	}
	switch class {
	case outcome.Carried:
		*certain++
	case outcome.Unknown:
		*perhaps++
	case outcome.NotApplied:
	default:
		return false
	}
	return true
}

// judge compares what is stored of a key with what the function was told. If it gave back,
// what is missing was given back twice.
func (f *freezer) judge(ctx context.Context, key string, d *told) error {
	for busy := true; busy; wait(ctx, time.Millisecond) {
		if err := f.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle')", f.name).Scan(&busy); err != nil {
			return err
		}
	}
	found, err := tables.Spent(ctx, f.db, freezing, key)
	if err != nil {
		return err
	}
	stored := found[key]
	f.counts[campaign.Operations] += d.calls
	f.counts[campaign.Unknown] += d.perhapsCharged + d.perhapsBack
	missing, tooMuch := campaign.LostTakes, campaign.DoubleCharges
	if d.back+d.perhapsBack > 0 {
		missing, tooMuch = campaign.OverAdmitted, lostRefunds
	}
	f.wrong[missing] += max(0, d.charged-d.back-d.perhapsBack-stored)
	f.wrong[tooMuch] += max(0, stored-d.charged-d.perhapsCharged+d.back)
	return nil
}
