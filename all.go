package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxClaims is how many claims [AllowAll] accepts.
const MaxClaims = 8

// Claim is one part of an [AllowAll]. The zero Claim is not valid.
type Claim struct {
	Limiter *Limiter
	Key     string
	Cost    int64 // 0 means 1
}

func (c *Claim) cost() int64 { return cmp.Or(c.Cost, 1) }

// AllResult is the result of [AllowAll]. The zero AllResult is a refusal that nothing decided.
type AllResult struct {
	// Result is that of the decision as a whole. Allowed reports whether every claim was taken.
	// RetryAfter is the longest wait of the claims that had no room. The other fields, also Taken, are
	// those of the claim Binding.
	Result
	// Binding is the index of the claim that decides. If the request is refused, that is the one that
	// can pass last. Otherwise it is the one with the smallest Remaining relative to its cost. A tie
	// goes to the first claim.
	Binding int
	// Each has the Result of every claim, in the order given. If the request was refused, Allowed
	// reports whether that limit alone had room, and nothing was charged. If a deny cache refused it,
	// only the claims that it refused have a Result, and RetryAfter is a lower bound.
	Each []Result
}

// AllowAll takes every claim or none: the request passes only if all limits have room, and only then
// it is charged to all of them. It accepts 1 to [MaxClaims] claims in any order.
//
// All limiters must share one [Store], which implements [AllStore]; the stores of this module do.
// Claims with the same limiter name, kind of policy and key are one claim, and their costs add up.
// Either all limiters have [WithClock] or none; the clock of the first claim decides.
//
// The strictest failure policy of the limiters applies: [FailClosed], then [FailLocal], then
// [FailOpen]. Limiters with FailLocal must share one fallback, which must also be an AllStore. The
// fallback decides only their claims. The shortest of the time limits counts. The observer of each
// claim's limiter gets one [Decision]. Its Result is that of the claim, with Allowed of the whole. If
// the request was refused, the Result also has the Source of the whole, because a fallback or a deny
// cache can refuse the request without deciding this claim.
//
// The errors are those of [Limiter.AllowN]; a sum of costs above a capacity is also
// [ErrExceedsCapacity]. If a policy is a window with CountRejected, or the store is not an AllStore,
// the error matches both [ErrInvalid] and [errors.ErrUnsupported]. With an error, Each is nil and
// nothing is charged, unless the error matches [ErrOutcomeUnknown]: then all claims were charged or
// none.
//
// After a clock was stepped back, RetryAfter may be up to 2 s short. To give a claim back, pass its
// Result of Each to [Limiter.RefundOf].
func AllowAll(ctx context.Context, claims ...Claim) (AllResult, error) {
	d := allDecision{claims: claims}
	if err := d.prepare(ctx); err != nil {
		return AllResult{Result: noDecision}, err
	}
	return d.decide(ctx)
}

// CheckAll returns an error if [AllowAll] may not accept claims of these limiters. Their order does not
// matter. The limiters must fit together in their stores, clocks and fallbacks. Two limiters of one name
// must have the same policy, and none may have a window with CountRejected.
//
// Call CheckAll when the program starts, with the limiter of each claim. It does no I/O, and does not call
// the functions of [WithPolicyFor]. The error is that of AllowAll.
func CheckAll(limiters ...*Limiter) error {
	d := allDecision{claims: make([]Claim, len(limiters))}
	for i, l := range limiters {
		d.claims[i].Limiter = l
	}
	if err := d.check(); err != nil {
		return err
	}
	for i, l := range limiters {
		if err := checkNotCounting(&Op{Name: l.name, Policy: l.policy}); err != nil {
			return err
		}
		for _, other := range limiters[:i] {
			if other.name == l.name && KindOf(other.policy) == KindOf(l.policy) && other.policy != l.policy {
				return twoPolicies(l.name, other.policy, l.policy)
			}
		}
	}
	return nil
}

// AllStore is an optional interface of a [Store], which [AllowAll] needs.
//
// DoAll carries out takes of different rows, all or none, as [ApplyAll] says, and returns their
// states in the same order. It is atomic in the same sense as Do, and its errors are those of Do.
// There are 1 to [MaxClaims] takes, with the same At and Timeout, a MaxWait of 0 and no policy with
// CountRejected. They are sorted as [Op.Compare] says, which is the order in which to lock their
// rows. DoAll returns the error of [CheckOps] for anything else.
type AllStore interface {
	Store
	DoAll(ctx context.Context, ops []Op) ([]State, error)
}

// CheckOps returns an error if [AllStore].DoAll must not carry out ops. The error is
// [errors.ErrUnsupported] if an operation is not a take, waits, or counts refusals, and [ErrInvalid]
// if the number, the order, or a time of the takes is wrong. Every DoAll calls it first.
func CheckOps(ops []Op) error {
	if len(ops) == 0 || len(ops) > MaxClaims {
		return invalid("DoAll got %d operations; pass 1 to %d", len(ops), MaxClaims)
	}
	for i := range ops {
		op := &ops[i]
		if err := op.Check(); err != nil {
			return err
		}
		if op.Kind != OpTake || op.MaxWait != 0 || op.CountsRefusals() {
			return fmt.Errorf("operation %d with MaxWait %v and policy %+v in DoAll: %w", op.Kind, op.MaxWait, op.Policy, errors.ErrUnsupported)
		}
		if op.At != ops[0].At || op.Timeout != ops[0].Timeout || i > 0 && ops[i-1].Compare(op) >= 0 {
			return invalid("take %d of DoAll does not fit the others; pass takes of different rows, sorted by Op.Compare, with the same At and Timeout", i)
		}
	}
	return nil
}

// Compare orders operations by the row that they use: by the kind of policy, the name and the key. It
// returns 0 if they use the same row.
func (op *Op) Compare(other *Op) int {
	return cmp.Or(cmp.Compare(KindOf(op.Policy), KindOf(other.Policy)), strings.Compare(op.Name, other.Name), strings.Compare(op.Key, other.Key))
}

// ApplyAll defines [AllStore].DoAll, as [Op.Apply] defines an operation. It takes the rows of ops and
// a clock reading. If every take has room, it returns the rows after them. Otherwise it returns the
// rows that the refused takes leave, and the other rows unchanged. State.Took reports whether that take
// alone had room.
func ApplyAll(ops []Op, rows []Row, now int64) (next []Row, states []State) {
	next, states = slices.Clone(rows), make([]State, len(ops))
	all := true
	for i, op := range ops {
		next[i], states[i] = op.Apply(rows[i], now)
		all = all && states[i].Took
	}
	if all {
		return next, states
	}
	for i, op := range ops {
		if states[i].Took {
			next[i] = rows[i]
			op.Kind = OpLook
			_, states[i] = op.Apply(rows[i], now)
			states[i].Took = true
		}
	}
	return next, states
}
