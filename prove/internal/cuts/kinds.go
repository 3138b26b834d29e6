package cuts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

// Kind is a kind of operation whose connection is cut. Each is on keys of its own.
type Kind struct {
	Name   string
	number int // what its limiters are named after
	// unit is what each that is carried out adds to what its key has spent.
	unit int64
	// reads is whether it only reads, so that its outcome is never unknown.
	reads bool
	// Fresh is whether it is done on a connection that has to be made.
	Fresh bool
	// strict is whether the pool's transactions are, so that the store makes its own.
	strict bool
	// statements are parts of the statements that it is to send.
	statements []string
	// setup is what comes before it, on the same connection; nil is nothing.
	setup func(*Lane) error
	act   func(*Lane) []answer
}

// answer is what was told of one call.
type answer struct {
	key     string
	carried bool
	err     error
	took    time.Duration
}

// Words by which the statements of package postgres can be told apart.
const (
	theHot         = "unfit AS"
	theGrant       = "OFFSET 0"
	theRead        = "SELECT coalesce($3::bigint"
	theLook        = "LEFT JOIN"
	theBucketSwap  = "AND capacity = $10"
	theMerged      = "unnest("
	theWindowCount = "4611686018427387904"
	theBegin       = "begin isolation level read committed"
	theCommit      = "commit"
)

// Kinds are all kinds.
func Kinds() []Kind {
	buckets := func(w *Lane) *limiter.Limiter { return w.bucket }
	windows := func(w *Lane) *limiter.Limiter { return w.window }
	kinds := []Kind{
		{Name: "bucket take", unit: 1, statements: []string{theHot}, act: take(buckets)},
		{Name: "bucket take by the grant alone", unit: 1, statements: []string{theGrant}, setup: setup(take(buckets)), act: take(buckets)},
		{Name: "bucket take that is refused by a read", unit: 1, reads: true, statements: []string{theRead}, setup: setup(take(tight)), act: take(tight)},
		{Name: "bucket take that a read does not refuse", unit: 1, statements: []string{theRead, theHot}, setup: reopened, act: take(tight)},
		{Name: "bucket take under a new policy", unit: 2, statements: []string{theGrant, theHot, theLook, theBucketSwap}, setup: setup(take(buckets)), act: take(wider)},
		{Name: "bucket takes that are merged", unit: 1, statements: []string{theMerged}, act: together(buckets)},
		{Name: "bucket refund", unit: -1, setup: twice(take(buckets)), act: refund(buckets)},
		{Name: "bucket cancel", unit: -1, setup: book(func(w *Lane) *limiter.Limiter { return w.line }), act: cancelBooking},
		{Name: "bucket reset", unit: -2, setup: twice(take(buckets)), act: reset(buckets)},
		{Name: "bucket peek", unit: 1, reads: true, setup: setup(take(buckets)), act: peek(buckets)},
		{Name: "bucket reservation", unit: 1, act: reserve(buckets)},

		{Name: "window take", unit: 1, statements: []string{theHot}, act: take(windows)},
		{Name: "window take by the grant alone", unit: 1, statements: []string{theGrant}, setup: setup(take(windows)), act: take(windows)},
		{Name: "window take that is refused by a read", unit: 1, reads: true, statements: []string{theRead}, setup: setup(take(narrow)), act: take(narrow)},
		{Name: "window take that counts refusals", unit: 1, statements: []string{theWindowCount}, act: take(func(w *Lane) *limiter.Limiter { return w.counts })},
		{Name: "window takes that are merged", unit: 1, statements: []string{theMerged}, act: together(windows)},
		{Name: "window refund", unit: -1, setup: twice(take(windows)), act: refund(windows)},
		{Name: "window cancel", unit: -1, setup: book(func(w *Lane) *limiter.Limiter { return w.rota }), act: cancelBooking},
		{Name: "window reset", unit: -2, setup: twice(take(windows)), act: reset(windows)},
		{Name: "window peek", unit: 1, reads: true, setup: setup(take(windows)), act: peek(windows)},
		{Name: "window reservation", unit: 1, act: reserve(windows)},

		{Name: "first bucket take of a connection", unit: 1, Fresh: true, act: take(buckets)},
		{Name: "first peek of a connection", unit: 1, reads: true, Fresh: true, act: peek(buckets)},

		{Name: "bucket take in a transaction", unit: 1, strict: true, statements: []string{theBegin, theCommit}, act: take(buckets)},
		{Name: "bucket takes that are merged in a transaction", unit: 1, strict: true, statements: []string{theBegin, theMerged, theCommit}, act: together(buckets)},
		{Name: "bucket refund in a transaction", unit: -1, strict: true, statements: []string{theBegin, theCommit}, setup: twice(take(buckets)), act: refund(buckets)},
	}
	for i := range kinds {
		kinds[i].number = i
	}
	return kinds
}

// of chooses one of a lane's limiters.
type of func(*Lane) *limiter.Limiter

func tight(w *Lane) *limiter.Limiter  { return w.tight }
func narrow(w *Lane) *limiter.Limiter { return w.narrow }
func wider(w *Lane) *limiter.Limiter  { return w.wider }

// call is an operation on the first key.
func call(f func(ctx context.Context, w *Lane, key string) (carried bool, err error)) func(*Lane) []answer {
	return func(w *Lane) []answer {
		began := time.Now()
		carried, err := f(context.Background(), w, w.keys[0])
		return []answer{{w.keys[0], carried && err == nil, err, time.Since(began)}}
	}
}

func take(l of) func(*Lane) []answer {
	return call(func(ctx context.Context, w *Lane, key string) (bool, error) {
		res, err := l(w).Allow(ctx, key)
		return res.Allowed, err
	})
}

// peek is never what carries something out.
func peek(l of) func(*Lane) []answer {
	return call(func(ctx context.Context, w *Lane, key string) (bool, error) {
		_, err := l(w).Peek(ctx, key)
		return false, err
	})
}

func refund(l of) func(*Lane) []answer {
	return call(func(ctx context.Context, w *Lane, key string) (bool, error) {
		return l(w).Refund(ctx, key, 1)
	})
}

func reset(l of) func(*Lane) []answer {
	return call(func(ctx context.Context, w *Lane, key string) (bool, error) {
		return true, l(w).Reset(ctx, key)
	})
}

func reserve(l of) func(*Lane) []answer {
	return call(func(ctx context.Context, w *Lane, key string) (bool, error) {
		r, err := l(w).Reserve(ctx, key, 1, time.Hour)
		return r.Allowed, err
	})
}

// setup does an operation before the one that is cut.
func setup(before func(*Lane) []answer) func(*Lane) error {
	return func(w *Lane) error { return before(w)[0].err }
}

// twice does one twice.
func twice(before func(*Lane) []answer) func(*Lane) error {
	return func(w *Lane) error { return errors.Join(before(w)[0].err, before(w)[0].err) }
}

// book makes a reservation that can be canceled: for its turn it has to wait.
func book(l of) func(*Lane) error {
	return func(w *Lane) (err error) {
		if err := setup(take(l))(w); err != nil {
			return err
		}
		w.booked, err = l(w).Reserve(context.Background(), w.keys[0], 1, time.Hour)
		return err
	}
}

var cancelBooking = call(func(ctx context.Context, w *Lane, _ string) (bool, error) {
	return true, w.booked.Cancel(ctx)
})

// reopened makes a key that the store believes to be exhausted, and that is not any more.
func reopened(w *Lane) error {
	if err := setup(take(tight))(w); err != nil {
		return err
	}
	_, err := w.db.Exec(context.Background(), "UPDATE limiter_token_buckets SET full_at = 0, at = 0 WHERE limiter = $1 AND key = $2", w.name, []byte(w.keys[0]))
	return err
}

// waiting is a context that tells when somebody waits for its end.
type waiting struct {
	context.Context
	once   sync.Once
	waited chan struct{}
}

func newWaiting(ctx context.Context) *waiting {
	return &waiting{Context: ctx, waited: make(chan struct{})}
}

// Done is [context.Context]'s.
func (w *waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waited) })
	return w.Context.Done()
}

// together has four takes of three keys go out in one statement: they arrive while two
// others wait for the pool's only connection, which leave then.
func together(l of) func(*Lane) []answer {
	return func(w *Lane) []answer {
		held, err := w.pool.Acquire(context.Background())
		if err != nil {
			return []answer{{key: w.keys[0], err: err}}
		}
		ahead, leave := context.WithCancel(context.Background())
		defer leave()
		var gone, done sync.WaitGroup
		for _, key := range []string{"ahead", "ahead, too"} {
			ctx := newWaiting(ahead)
			gone.Go(func() { _, _ = l(w).Allow(ctx, key) })
			<-ctx.waited
		}
		// The first key has two: they are one row, of two units.
		keys := slices.Concat(w.keys[:1], w.keys)
		answers := make([]answer, len(keys))
		for i, key := range keys {
			ctx := newWaiting(context.Background())
			done.Go(func() {
				began := time.Now()
				res, err := l(w).Allow(ctx, key)
				answers[i] = answer{key, res.Allowed && err == nil, err, time.Since(began)}
			})
			<-ctx.waited
		}
		leave()
		gone.Wait()
		held.Release()
		done.Wait()
		return answers
	}
}
