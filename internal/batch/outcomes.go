package batch

import (
	"context"
	"sync"
	"time"

	"github.com/sqlimit/limiter/internal/opcontext"
)

// outcomes are when the store last answered a statement, and when a statement that was sent last failed. The zero
// value has seen neither. It is safe for concurrent use.
type outcomes struct {
	mu               sync.Mutex
	answered, failed time.Time
}

// record adds a statement. An error is no answer.
func (o *outcomes) record(answered bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if answered {
		o.answered = now
	} else {
		o.failed = now
	}
}

// after reports whether there was an answer, and whether there was a failure, at begin or later.
func (o *outcomes) after(begin time.Time) (answered, failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.answered.Before(begin), !o.failed.Before(begin)
}

// othersAnswered reports whether the store has answered others since an operation came, while it waited in the queues
// or for a connection. Then the store is not at fault if the time of the operation, ctx, ends. While a connection
// is being made, ctx may last longer than the time limit: then only its last part counts, as long as the limit.
// If statements of a queue have only failed, its table may be locked, and answers elsewhere do not count.
func othersAnswered(ctx context.Context, came time.Time, queues ...*Queue) bool {
	if began := opcontext.Began(ctx); came.Before(began) {
		came = began
	}
	for _, q := range queues {
		if answered, failed := q.outcomes.after(came); failed && !answered {
			return false
		}
	}
	answered, _ := queues[0].config.Counters.outcomes.after(came)
	return answered
}
