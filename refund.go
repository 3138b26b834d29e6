package limiter

import "context"

// Refund gives n back to a key, for example after a request that passed but was not carried out. It
// reports whether it gave anything back. It gives nothing back if the key is unused, or while
// reservations are outstanding, because those have booked what it would give back. A refund never
// gives a key more than an unused key has.
//
// On a fixed window, Refund credits the current window, even if the request was charged in an
// earlier one. On a sliding window it credits the oldest slices that count. To credit only the charged
// window or slice, use [Limiter.RefundOf].
//
// Never retry a refund whose outcome is unknown: a second refund would admit too much. The error is
// [ErrInvalid] if n is negative or the key is empty. Otherwise it is the store's.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) (bool, error) {
	return l.refund(ctx, SourceStore, key, n, takenFrom{})
}

// RefundOf is [Limiter.Refund] for the request that was charged with res. It gives back at most
// res.Taken. On a fixed window it credits only the window in which res was charged. After that
// window has ended, it gives nothing back, so a late refund never credits a later window. The same holds
// for the slice of a sliding window. On a token bucket it is Refund.
//
// If res charged nothing, RefundOf gives nothing back and does no I/O. That is the case for a
// refusal (even one that CountRejected counts), for a Peek, and for a request that [FailOpen] let
// pass. If the fallback of [FailLocal] was charged, RefundOf refunds the fallback.
//
// Pass a Result only to the Limiter that returned it, with the same key, and only once: RefundOf
// does not remember what it gave back. The errors are those of Refund, and [ErrInvalid] if a
// fallback was charged and the Limiter has none.
func (l *Limiter) RefundOf(ctx context.Context, key string, n int64, res Result) (bool, error) {
	from := SourceStore
	switch {
	case res.takenFrom == takenFrom{}:
		n = min(n, 0)
	case res.Source == SourceLocal:
		if from = SourceLocal; l.fallback == nil {
			return false, invalid("limiter %q: the Result was charged by a fallback, and this limiter has none; pass it to the limiter that returned it", l.name)
		}
	}
	return l.refund(ctx, from, key, min(n, res.Taken), res.takenFrom)
}

// refund gives n back to a key in a store. The zero takenFrom means the current window.
func (l *Limiter) refund(ctx context.Context, from Source, key string, n int64, of takenFrom) (bool, error) {
	if n < 0 {
		return false, invalid("the refund is %d; it must be at least 0", n)
	}
	var b booking
	if err := l.op(ctx, &b.op, OpRefund, key, n); err != nil {
		return false, err
	}
	if n == 0 {
		return false, checkContext(ctx)
	}
	b.op.Booked.Row = Row{Start: of.start, Period: of.period}
	return l.giveBack(ctx, from, &b)
}

// Reset makes a key unused: it forgets what was taken and booked, so do not refund or cancel that
// afterwards. The error is [ErrInvalid] if the key is empty. Otherwise it is the store's.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var b booking
	if err := l.op(ctx, &b.op, OpReset, key, 0); err != nil {
		return err
	}
	_, err := l.giveBack(ctx, SourceStore, &b)
	return err
}

// giveBack tells the store or the fallback to carry out a refund, cancel or reset, and reports whether
// that changed anything. Until it returns, the deny cache keeps no refusal of the key, nor later one
// that was requested before that.
func (l *Limiter) giveBack(ctx context.Context, from Source, b *booking) (bool, error) {
	if l.deny != nil {
		defer l.deny.suspend(b.op.Key).resume()
	}
	_, err := l.carryOut(ctx, from, b)
	return b.state.Took, err
}
