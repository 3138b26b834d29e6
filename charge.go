package limiter

import (
	"context"
	"fmt"
	"time"
)

// Charge charges n to a key, whatever is left. Use it for costs that are known only afterwards, such as the
// tokens of a language model or the bytes of a response. The key may go into debt, and later requests wait
// until it is paid. A window forgets the debt when it ends, and a sliding window slice by slice.
//
// Allowed reports whether the key had room for n. RetryAfter is the wait for a request of cost 1
// afterwards. A Charge of 0 charges nothing and returns what [Limiter.Peek] returns. Estimate low:
// take the estimate by [Limiter.AllowN] and charge the rest, because a [Limiter.Refund] gives nothing
// back while a bucket is in debt.
//
// The debt of a bucket grows up to 36 years. The count of a sliding window grows up to 2^61, and that of
// another window up to 2^62, which is a block: no refund lowers it. The error is [ErrInvalid] if n is
// negative or the key is empty, and [ErrExceedsCapacity] if a bucket takes over 30 years to refill n tokens.
// Other errors are the store's: no failure policy applies. If an error matches [ErrOutcomeUnknown], a retry
// may charge twice.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) (Result, error) {
	kind, cost := OpCharge, n
	if n == 0 {
		kind, cost = OpLook, 1
	}
	var b booking
	if err := l.op(ctx, &b.op, kind, key, cost); err != nil {
		return noDecision, err
	}
	if n < 0 {
		return noDecision, invalid("the charge is %d; pass at least 0, and use Refund to give back", n)
	}
	if most := maxCharge(b.op.Policy); n > most {
		return noDecision, fmt.Errorf("%w: limiter %q: the charge is %d; the policy takes over 30 years to give back more than %d", ErrExceedsCapacity, l.name, n, most)
	}
	return l.carryOutAndForget(ctx, &b)
}

// Block refuses every request of a key for at least d. [Limiter.Reset] ends the block. A Refund or
// Cancel does not, and neither does a change of a bucket's policy. A bucket is empty when the block
// ends.
//
// A fixed window is blocked until the end of the window in which d ends, and its count is forgotten. If the
// length of the windows changes, the block may end earlier. If the key is then charged or blocked
// again, it may end later, with the window of the new length. A sliding window is blocked up to a slice
// longer than d, and what was counted keeps counting. [Limiter.Reserve] and [Limiter.Wait] may book a
// turn after the block.
//
// The duration d is above 0 and at most [MaxBlock]; otherwise the error is [ErrInvalid]. Other errors
// are the store's: no failure policy applies. If one matches [ErrOutcomeUnknown], call Block again.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	var b booking
	if err := l.op(ctx, &b.op, OpBlock, key, int64(d)); err != nil {
		return err
	}
	if d <= 0 || d > MaxBlock {
		return invalid("the block lasts %v; pass more than 0 and at most %v", d, MaxBlock)
	}
	_, err := l.carryOutAndForget(ctx, &b)
	return err
}
