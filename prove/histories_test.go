package prove_test

import (
	"context"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/audit"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/workload"
)

// busy is what a worker does in a round. One behind a pooler has a few callers only: without
// prepared statements each call costs several times as much. Nothing fails here, so that a
// call may take long.
var (
	busy       = workload.Options{Callers: 256, Timeout: time.Minute}
	busyPooled = workload.Options{Callers: 48, Timeout: time.Minute}
)

// sweeper is what removes expired rows.
type sweeper interface {
	Sweep(ctx context.Context, limit int64) (int64, error)
}

// rest is how long a sweep is followed by none: it reads whole tables.
const rest = 50 * time.Millisecond

// swept calls run while rows are swept again and again, and returns how many were.
func swept(t *testing.T, s sweeper, run func()) (removed int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			n, err := s.Sweep(t.Context(), 1_000_000)
			if removed += n; err != nil {
				t.Error(err)
				return
			}
			wait(ctx, rest)
		}
	}()
	run()
	cancel()
	<-done
	return removed
}

// historyRound is a round of the workload, recorded and checked. Expired rows are swept
// meanwhile. The store's clock reads now.
func historyRound(t *testing.T, r *campaign.Round, log audit.Log, now time.Time, s sweeper, workers ...worker) {
	t.Helper()
	h := openHistory(t, r, log, now, workers)
	r.Count("expired rows swept", swept(t, s, func() { h.Calls = startWorkers(t, workers...).calls(t) }))
	closeHistory(t, r, log, h)
}

// openHistory prepares a round. The store's clock reads now.
func openHistory(t *testing.T, r *campaign.Round, log audit.Log, now time.Time, workers []worker) *history.History {
	t.Helper()
	if err := log.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened := workload.Expired(r.Number, now)
	if err := log.Seed(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	for i := range workers {
		workers[i].Seed, workers[i].Round, workers[i].Calls = r.Rand.Uint64(), r.Number, *perCaller
	}
	return &history.History{Opened: opened, DenyAge: int64(workload.DenyAge)}
}

// closeHistory judges what a round ends with.
func closeHistory(t *testing.T, r *campaign.Round, log audit.Log, h *history.History) {
	t.Helper()
	var err error
	if h.Transitions, h.Left, err = log.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	judge(t, r, h)
}

// judge checks a history and counts what it finds.
func judge(t *testing.T, r *campaign.Round, h *history.History) {
	t.Helper()
	witness := history.Check(h)
	if err := witness.Err(); err != nil {
		t.Error(err)
	}
	r.Count(campaign.Operations, witness.Operations)
	r.Count("takes granted", witness.Charged)
	for i := range h.Calls {
		switch c := &h.Calls[i]; {
		case c.Outcome == history.DenyCache:
			r.Count("operations refused from memory", 1)
		case c.Op.Kind == limiter.OpTake && c.Op.MaxWait > 0 && c.State.Took:
			r.Count("reservations", 1)
		case c.Op.Kind == limiter.OpTakeUpTo && c.State.Took && c.State.Taken < c.Op.Cost:
			r.Count("takes of a part", 1)
		case c.Op.Kind == limiter.OpCharge && c.Outcome == history.Answered && !c.State.Took:
			r.Count("charges into debt", 1)
		case c.Op.Kind == limiter.OpCharge && c.State.Took:
			r.Count("charges with room", 1)
		case c.Op.Kind == limiter.OpBlock && c.State.Took:
			r.Count("blocks", 1)
		case c.Op.Kind == limiter.OpRefund && c.State.Took:
			r.Count("refunds", 1)
		case c.Op.Kind == limiter.OpCancel && c.State.Took:
			r.Count("cancels", 1)
		case c.Op.Kind == limiter.OpReset && c.State.Took:
			r.Count("resets", 1)
		}
	}
	r.Count("refused for a lost race", witness.LostRaces)
	r.Count("statements' changes of rows", int64(len(h.Transitions)))
	r.Count(campaign.Unknown, witness.Unknown)
	r.None(campaign.OverAdmitted, witness.Of(history.Over))
	r.None(campaign.LostTakes, witness.Of(history.Lost))
	r.None(campaign.DoubleCharges, witness.Of(history.Double))
}
