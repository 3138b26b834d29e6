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
	// reads is whether it only reads, so that its outcome is never unknown. refused is whether its
	// statement could write, but does not.
	reads, refused bool
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
	theLook        = "LEFT JOIN"
	theSwap        = ", granted) = ("
	theMerged      = "unnest("
	theWindowCount = "4611686018427387904"
	theRefund      = "SET full_at = greatest(0, b.full_at - least("
	theBegin       = "begin isolation level read committed"
	theCommit      = "commit"
)

// Kinds are all kinds.
func Kinds() []Kind {
	buckets := func(w *Lane) *limiter.Limiter { return w.bucket }
	windows := func(w *Lane) *limiter.Limiter { return w.window }
	kinds := []Kind{
		{Name: "bucket take", unit: 1, statements: []string{theHot}, act: once(take(buckets))},
		{Name: "bucket take of a row", unit: 1, statements: []string{theHot}, setup: setup(take(buckets)), act: once(take(buckets))},
		{Name: "bucket take that is refused", unit: 1, refused: true, statements: []string{theHot}, setup: setup(take(tight)), act: once(take(tight))},
		{Name: "bucket take under a new policy", unit: 2, statements: []string{theHot, theLook, theSwap}, setup: setup(take(buckets)), act: once(take(wider))},
		{Name: "bucket takes that are merged", unit: 1, statements: []string{theMerged}, act: together(buckets)},
		{Name: "bucket refund", unit: -1, setup: twice(take(buckets)), act: once(refund(buckets))},
		{Name: "bucket refunds that are sent together", unit: -1, statements: []string{theRefund}, setup: twice(take(buckets)), act: refundsTogether(buckets)},
		{Name: "bucket cancel", unit: -1, setup: book(func(w *Lane) *limiter.Limiter { return w.line }), act: once(cancelBooking)},
		{Name: "bucket reset", unit: -2, setup: twice(take(buckets)), act: once(reset(buckets))},
		{Name: "bucket peek", unit: 1, reads: true, setup: setup(take(buckets)), act: once(peek(buckets))},
		{Name: "bucket reservation", unit: 1, act: once(reserve(buckets))},

		{Name: "window take", unit: 1, statements: []string{theHot}, act: once(take(windows))},
		{Name: "window take of a row", unit: 1, statements: []string{theHot}, setup: setup(take(windows)), act: once(take(windows))},
		{Name: "window take that is refused", unit: 1, refused: true, statements: []string{theHot}, setup: setup(take(narrow)), act: once(take(narrow))},
		{Name: "window take that counts refusals", unit: 1, statements: []string{theWindowCount}, act: once(take(func(w *Lane) *limiter.Limiter { return w.counts }))},
		{Name: "window takes that are merged", unit: 1, statements: []string{theMerged}, act: together(windows)},
		{Name: "window refund", unit: -1, setup: twice(take(windows)), act: once(refund(windows))},
		{Name: "window cancel", unit: -1, setup: book(func(w *Lane) *limiter.Limiter { return w.rota }), act: once(cancelBooking)},
		{Name: "window reset", unit: -2, setup: twice(take(windows)), act: once(reset(windows))},
		{Name: "window peek", unit: 1, reads: true, setup: setup(take(windows)), act: once(peek(windows))},
		{Name: "window reservation", unit: 1, act: once(reserve(windows))},

		{Name: "first bucket take of a connection", unit: 1, Fresh: true, act: once(take(buckets))},
		{Name: "first peek of a connection", unit: 1, reads: true, Fresh: true, act: once(peek(buckets))},

		{Name: "bucket take in a transaction", unit: 1, strict: true, statements: []string{theBegin, theCommit}, act: once(take(buckets))},
		{Name: "bucket takes that are merged in a transaction", unit: 1, strict: true, statements: []string{theBegin, theMerged, theCommit}, act: together(buckets)},
		{Name: "bucket refund in a transaction", unit: -1, strict: true, statements: []string{theBegin, theCommit}, setup: twice(take(buckets)), act: once(refund(buckets))},
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

// operation is what a kind does on a key.
type operation func(ctx context.Context, w *Lane, key string) (carried bool, err error)

// answer does the operation.
func (do operation) answer(ctx context.Context, w *Lane, key string) answer {
	began := time.Now()
	carried, err := do(ctx, w, key)
	return answer{key, carried && err == nil, err, time.Since(began)}
}

// once does an operation on the first key.
func once(do operation) func(*Lane) []answer {
	return func(w *Lane) []answer { return []answer{do.answer(context.Background(), w, w.keys[0])} }
}

func take(l of) operation {
	return func(ctx context.Context, w *Lane, key string) (bool, error) {
		res, err := l(w).Allow(ctx, key)
		return res.Allowed, err
	}
}

// peek is never what carries something out.
func peek(l of) operation {
	return func(ctx context.Context, w *Lane, key string) (bool, error) {
		_, err := l(w).Peek(ctx, key)
		return false, err
	}
}

func refund(l of) operation {
	return func(ctx context.Context, w *Lane, key string) (bool, error) {
		return l(w).Refund(ctx, key, 1)
	}
}

func reset(l of) operation {
	return func(ctx context.Context, w *Lane, key string) (bool, error) {
		return true, l(w).Reset(ctx, key)
	}
}

func reserve(l of) operation {
	return func(ctx context.Context, w *Lane, key string) (bool, error) {
		r, err := l(w).Reserve(ctx, key, 1, time.Hour)
		return r.Allowed, err
	}
}

// setup does an operation before the one that is cut.
func setup(before operation) func(*Lane) error {
	return func(w *Lane) error { return once(before)(w)[0].err }
}

// twice does one twice.
func twice(before operation) func(*Lane) error {
	return func(w *Lane) error { return errors.Join(setup(before)(w), setup(before)(w)) }
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

func cancelBooking(ctx context.Context, w *Lane, _ string) (bool, error) {
	return true, w.booked.Cancel(ctx)
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

// together has four takes of three keys go out in one statement.
func together(l of) func(*Lane) []answer {
	return func(w *Lane) []answer {
		// The first key has two: they are one row, of two units.
		return meet(w, slices.Concat(w.keys[:1], w.keys), []string{"ahead", "ahead, too"}, take(l))
	}
}

// refundsTogether has two refunds of a key go out in one round trip.
func refundsTogether(l of) func(*Lane) []answer {
	return func(w *Lane) []answer {
		return meet(w, []string{w.keys[0], w.keys[0]}, w.keys[:1], refund(l))
	}
}

// meet does an operation on each of keys at once: they arrive while those on the keys ahead wait for
// the pool's only connection, which leave then.
func meet(w *Lane, keys, ahead []string, do operation) []answer {
	held, err := w.pool.Acquire(context.Background())
	if err != nil {
		return []answer{{key: w.keys[0], err: err}}
	}
	leaving, leave := context.WithCancel(context.Background())
	defer leave()
	var gone, done sync.WaitGroup
	for _, key := range ahead {
		ctx := newWaiting(leaving)
		gone.Go(func() { _, _ = do(ctx, w, key) })
		<-ctx.waited
	}
	answers := make([]answer, len(keys))
	for i, key := range keys {
		ctx := newWaiting(context.Background())
		done.Go(func() { answers[i] = do.answer(ctx, w, key) })
		<-ctx.waited
	}
	leave()
	gone.Wait()
	held.Release()
	done.Wait()
	return answers
}
