package cuts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// Kind is a kind of operation whose connection is cut. Each is on keys of its own.
type Kind struct {
	Name       string
	number     int                 // in the name of its limiters
	unit       int64               // what each operation that is carried out adds to what its key has spent
	reads      bool                // it only reads, so its outcome is never unknown
	refused    bool                // its statement could write, but does not
	Fresh      bool                // a connection is made for it
	joint      bool                // it takes from all keys or from none
	leases     bool                // it is on leases
	strict     bool                // the pool's transactions see a snapshot, so the store makes its own
	statements []string            // parts of the statements that it must send
	setup      func(*Client) error // comes before it, on the same connection; may be nil
	act        func(*Client) []answer
}

type answer struct {
	key     string
	carried bool
	err     error
	took    time.Duration
}

// Words by which the statements of package postgres can be told apart.
const (
	theHot         = "blocked AS"
	theLook        = "LEFT JOIN"
	theSwap        = ", granted) = ("
	theMerged      = "unnest("
	theAll         = "held1 AS"
	theAcquire     = "width_bucket("
	theRelease     = "array_position("
	theCalendar    = "$9::bigint"
	theWindowCount = "4611686018427387904"
	theRefund      = "SET full_at = greatest(0, b.full_at - least("
	theBegin       = "begin isolation level read committed"
	theCommit      = "commit"
)

// Kinds are all kinds. Those with the most bytes are not the last, so that all clients work until the end.
func Kinds() []Kind {
	three := []limit{bucket, bucket, window}
	sameKind, underAnother := slices.Repeat([]limit{bucket}, 3), slices.Repeat([]limit{wider}, 3)
	kinds := []Kind{
		{Name: "bucket take", unit: 1, statements: []string{theHot}, act: once(take(bucket))},
		{Name: "bucket take of a row", unit: 1, statements: []string{theHot}, setup: setup(take(bucket)), act: once(take(bucket))},
		{Name: "bucket take that is refused", unit: 1, refused: true, statements: []string{theHot}, setup: setup(take(tight)), act: once(take(tight))},
		{Name: "bucket take under a new policy", unit: 2, statements: []string{theHot, theLook, theSwap}, setup: setup(take(bucket)), act: once(take(wider))},
		{Name: "bucket takes that are merged", unit: 1, statements: []string{theMerged}, act: together(bucket)},
		{Name: "bucket refund", unit: -1, setup: twice(take(bucket)), act: once(refund(bucket))},
		{Name: "bucket refunds that are sent together", unit: -1, statements: []string{theRefund}, setup: twice(take(bucket)), act: refundsTogether(bucket)},
		{Name: "bucket cancel", unit: -1, setup: book(line), act: once(cancelBooking)},
		{Name: "bucket reset", unit: -2, setup: twice(take(bucket)), act: once(reset(bucket))},
		{Name: "bucket peek", unit: 1, reads: true, setup: setup(take(bucket)), act: once(peek(bucket))},
		{Name: "bucket reservation", unit: 1, act: once(reserve(bucket))},
		{Name: "window take", unit: 1, statements: []string{theHot}, act: once(take(window))},
		{Name: "window take of a row", unit: 1, statements: []string{theHot}, setup: setup(take(window)), act: once(take(window))},
		{Name: "window take that is refused", unit: 1, refused: true, statements: []string{theHot}, setup: setup(take(narrow)), act: once(take(narrow))},
		{Name: "window take that counts refusals", unit: 1, statements: []string{theWindowCount}, act: once(take(counts))},
		{Name: "window takes that are merged", unit: 1, statements: []string{theMerged}, act: together(window)},
		{Name: "window refund", unit: -1, setup: twice(take(window)), act: once(refund(window))},
		{Name: "window cancel", unit: -1, setup: book(rota), act: once(cancelBooking)},
		{Name: "window reset", unit: -2, setup: twice(take(window)), act: once(reset(window))},
		{Name: "window peek", unit: 1, reads: true, setup: setup(take(window)), act: once(peek(window))},
		{Name: "window reservation", unit: 1, act: once(reserve(window))},
		{Name: "calendar take", unit: 1, statements: []string{theHot, theCalendar}, act: once(take(calendar))},
		{Name: "calendar take of a row", unit: 1, statements: []string{theHot, theCalendar}, setup: setup(take(calendar)), act: once(take(calendar))},
		{Name: "calendar takes that are merged", unit: 1, statements: []string{theMerged}, act: together(calendar)},
		{Name: "calendar refund", unit: -1, setup: twice(take(calendar)), act: once(refund(calendar))},
		{Name: "acquire", unit: 1, leases: true, statements: []string{theAcquire}, act: once(acquire)},
		{Name: "acquire of a row", unit: 1, leases: true, statements: []string{theAcquire}, setup: setup(acquire), act: once(acquire)},
		{Name: "acquire that is refused", unit: 1, leases: true, refused: true, statements: []string{theAcquire}, setup: twice(acquire), act: once(acquire)},
		{Name: "release beside another lease", unit: -1, leases: true, statements: []string{theRelease}, setup: twice(acquire), act: once(release)},
		{Name: "extension of a lease", unit: 1, leases: true, refused: true, setup: twice(acquire), act: once(extend)},
		{Name: "decision over several limits", unit: 1, joint: true, statements: []string{theAll}, act: all(three...)},
		{Name: "decision over several limits with rows", unit: 1, joint: true, statements: []string{theAll}, setup: setupAll(three...), act: all(three...)},
		{Name: "decision over several limits that is refused", unit: 1, joint: true, refused: true, statements: []string{theAll}, setup: setup(take(tight)), act: all(tight, bucket, window)},
		{Name: "decision over several limits in a transaction", unit: 1, joint: true, strict: true, statements: []string{theBegin, theAll, theCommit}, act: all(three...)},
		{Name: "decision over several limits under a new policy", unit: 2, joint: true, statements: []string{theAll, theSwap, theCommit}, setup: setupAll(sameKind...), act: all(underAnother...)},
		{Name: "first bucket take of a connection", unit: 1, Fresh: true, act: once(take(bucket))},
		{Name: "first peek of a connection", unit: 1, reads: true, Fresh: true, act: once(peek(bucket))},
		{Name: "bucket take in a transaction", unit: 1, strict: true, statements: []string{theBegin, theCommit}, act: once(take(bucket))},
		{Name: "bucket takes that are merged in a transaction", unit: 1, strict: true, statements: []string{theBegin, theMerged, theCommit}, act: together(bucket)},
		{Name: "acquire in a transaction", unit: 1, leases: true, strict: true, statements: []string{theBegin, theAcquire, theCommit}, act: once(acquire)},
		{Name: "release in a transaction", unit: -1, leases: true, strict: true, statements: []string{theBegin, theRelease, theCommit}, setup: twice(acquire), act: once(release)},
		{Name: "bucket refund in a transaction", unit: -1, strict: true, statements: []string{theBegin, theCommit}, setup: twice(take(bucket)), act: once(refund(bucket))},
	}
	return numbered(kinds)
}

// CitusKinds are those for [NewCitusClient]. Each writes a row that is there.
func CitusKinds() (kinds []Kind) {
	for _, l := range []limit{bucket, sliding} {
		for _, k := range []Kind{
			{Name: "take", unit: 1, act: once(take(l))},
			{Name: "reservation", unit: 1, act: once(reserve(l))},
			{Name: "charge", unit: 1, act: once(charge(l))},
			{Name: "refund", unit: -1, act: once(refund(l))},
			{Name: "reset", unit: -2, act: once(reset(l))},
			{Name: "decision over one limit", unit: 1, act: all(l)},
			{Name: "decision over several limits", unit: 1, joint: true, setup: setupAll(l, l, l), act: all(l, l, l)},
		} {
			if k.Name = string(l) + " " + k.Name; k.setup == nil {
				k.setup = twice(take(l))
			}
			kinds = append(kinds, k)
		}
	}
	return numbered(append(kinds,
		Kind{Name: "acquire", unit: 1, setup: setup(acquire), act: once(acquire)},
		Kind{Name: "release", unit: -1, setup: twice(acquire), act: once(release)}))
}

func numbered(kinds []Kind) []Kind {
	for i := range kinds {
		kinds[i].number = i
	}
	return kinds
}

type operation func(ctx context.Context, w *Client, key string) (carried bool, err error)

func (do operation) answer(ctx context.Context, w *Client, key string) answer {
	began := time.Now()
	carried, err := do(ctx, w, key)
	return answer{key, carried && err == nil, err, time.Since(began)}
}

func once(do operation) func(*Client) []answer {
	return func(w *Client) []answer { return []answer{do.answer(context.Background(), w, w.keys[0])} }
}

// on makes an operation of what is done to a key of a limiter.
func on(do func(ctx context.Context, l *limiter.Limiter, key string) (bool, error)) func(limit) operation {
	return func(l limit) operation {
		return func(ctx context.Context, w *Client, key string) (bool, error) { return do(ctx, w.limiters[l], key) }
	}
}

var (
	take = on(func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		res, err := l.Allow(ctx, key)
		return res.Allowed, err
	})
	peek = on(func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		return false, testenv.ErrorOf(l.Peek(ctx, key))
	})
	refund = on(func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) { return l.Refund(ctx, key, 1) })
	charge = on(func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		return true, testenv.ErrorOf(l.Charge(ctx, key, 1))
	})
	reset = on(func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		return true, l.Reset(ctx, key)
	})

	reserve = on(func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		r, err := l.Reserve(ctx, key, 1, time.Hour)
		return r.Allowed, err
	})
)

// all is one decision over the keys, each of which has its limiter. Its answer is of the first key.
func all(limiters ...limit) func(*Client) []answer {
	return once(func(ctx context.Context, w *Client, _ string) (bool, error) {
		var claims []limiter.Claim
		for i, l := range limiters {
			claims = append(claims, limiter.Claim{Limiter: w.limiters[l], Key: w.keys[i]})
		}
		r, err := limiter.AllowAll(ctx, claims...)
		return r.Allowed, err
	})
}

// setupAll makes such a decision before the operation that is cut.
func setupAll(limiters ...limit) func(*Client) error {
	return func(w *Client) error { return all(limiters...)(w)[0].err }
}

func acquire(ctx context.Context, w *Client, key string) (took bool, err error) {
	w.lease, err = w.inFlight.TryAcquire(ctx, key)
	return w.lease.Allowed, err
}

// release releases the lease of the latest acquire.
func release(ctx context.Context, w *Client, _ string) (bool, error) {
	return true, w.lease.Release(ctx)
}

// extend makes this lease no longer. It adds nothing, so it counts as carried out if there was no lease.
func extend(ctx context.Context, w *Client, _ string) (bool, error) {
	held, err := w.lease.Extend(ctx, hold)
	return !held, err
}

func setup(before operation) func(*Client) error {
	return func(w *Client) error { return once(before)(w)[0].err }
}

func twice(before operation) func(*Client) error {
	return func(w *Client) error { return errors.Join(setup(before)(w), setup(before)(w)) }
}

// book makes a reservation that can be canceled: for its turn it has to wait.
func book(l limit) func(*Client) error {
	return func(w *Client) (err error) {
		if err := setup(take(l))(w); err != nil {
			return err
		}
		w.booked, err = w.limiters[l].Reserve(context.Background(), w.keys[0], 1, time.Hour)
		return err
	}
}

func cancelBooking(ctx context.Context, w *Client, _ string) (bool, error) {
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

// together has three takes and a charge of three keys go out in one statement.
func together(l limit) func(*Client) []answer {
	return func(w *Client) []answer {
		// The first key has two takes: they are one row, of two units.
		return meet(w, slices.Concat(w.keys[:1], w.keys), []string{"ahead", "ahead, too"}, func(ctx context.Context, w *Client, key string) (bool, error) {
			if key == w.keys[2] {
				return charge(l)(ctx, w, key)
			}
			return take(l)(ctx, w, key)
		})
	}
}

// refundsTogether has two refunds of a key go out in one round trip.
func refundsTogether(l limit) func(*Client) []answer {
	return func(w *Client) []answer { return meet(w, []string{w.keys[0], w.keys[0]}, w.keys[:1], refund(l)) }
}

// meet does an operation on keys at once: they arrive while those ahead wait for the only connection, which leave.
func meet(w *Client, keys, ahead []string, do operation) []answer {
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
