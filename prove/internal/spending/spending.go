// Package spending checks what processes did with the tokens of one bucket that they take ahead by package
// borrow. All processes share the clock of one machine. The checks do not use [limiter.Op.Apply].
package spending

import (
	"context"
	"math"
	"time"

	"github.com/sqlimit/limiter"
)

// Event is a request that passed, or a statement that changed the bucket.
type Event struct {
	Source   limiter.Source // of the request; 0 for a statement
	From, To int64          // the machine's clock before and after it, in nanoseconds
	Tokens   int64          // that passed, were taken, or (below 0) were given back
}

// Recorder is a store that reports the statements that change the bucket. Several goroutines may call Note.
type Recorder struct {
	limiter.Store
	Note func(Event)
}

// Do implements [limiter.Store].
func (r Recorder) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	e := Event{From: time.Now().UnixNano()}
	s, err := r.Store.Do(ctx, op)
	switch e.To = time.Now().UnixNano(); {
	case err != nil || !s.Took:
		return s, err
	case op.Kind == limiter.OpTake:
		e.Tokens = op.Cost
	case op.Kind == limiter.OpTakeUpTo:
		e.Tokens = s.Taken
	case op.Kind == limiter.OpRefund:
		e.Tokens = -op.Cost
	}
	r.Note(e)
	return s, nil
}

// Sum returns the tokens of the events of a source that began at an instant or later.
func Sum(events []Event, source limiter.Source, since int64) (tokens int64) {
	for _, e := range events {
		if e.Source == source && e.From >= since {
			tokens += e.Tokens
		}
	}
	return tokens
}

// bin is the resolution of the checks.
const bin = int64(10 * time.Millisecond)

// binned sums up the tokens of events for each pair of bins i <= j: those that began in i or later and ended
// in j or earlier. Nobody knows at which instant between its beginning and its end a request passed.
func binned(events []Event, counts func(e Event) bool) (sums [][]int64) {
	begin, end := int64(math.MaxInt64), int64(0)
	for _, e := range events {
		begin, end = min(begin, e.From), max(end, e.To)
	}
	n := max(0, (end-begin)/bin+1)
	from, to := make([][]Event, n), make([]int64, n)
	for _, e := range events {
		if counts(e) {
			from[(e.From-begin)/bin] = append(from[(e.From-begin)/bin], e)
		}
	}
	sums = make([][]int64, n)
	for i := n - 1; i >= 0; i-- {
		for _, e := range from[i] {
			to[(e.To-begin)/bin] += e.Tokens
		}
		sums[i] = make([]int64, n)
		for j, sum := i, int64(0); j < n; j++ {
			sum += to[j]
			sums[i][j] = sum
		}
	}
	return sums
}

func passed(e Event) bool { return e.Source == limiter.SourceStore }
func taken(e Event) bool  { return e.Source == 0 && e.Tokens > 0 }

// Over returns how many tokens of all processes passed beyond the promise: during any time t, between any
// pair of bins, at most Capacity + (t+ttl)·Refill/Interval.
func Over(p limiter.TokenBucket, ttl time.Duration, events []Event) (most int64) {
	for i, sums := range binned(events, passed) {
		for j := i; j < len(sums); j++ {
			t := int64(j-i+1)*bin + int64(ttl)
			most = max(most, sums[j]-p.Capacity-t/int64(p.Step()))
		}
	}
	return most
}

// Stale returns how many tokens of one process passed later than the ttl after the statement was sent that
// took them. Those that passed between two bins must have been taken since a ttl before the first bin.
func Stale(ttl time.Duration, events []Event) (most int64) {
	took, before := binned(events, taken), int((int64(ttl)+bin-1)/bin)
	for i, sums := range binned(events, passed) {
		for j := i; j < len(sums); j++ {
			most = max(most, sums[j]-took[max(0, i-before)][j])
		}
	}
	return most
}
