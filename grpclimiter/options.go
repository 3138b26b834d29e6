package grpclimiter

import (
	"context"

	"github.com/sqlimit/limiter"
)

// Option changes how an [Interceptor] works. Functions that are passed to options must be safe for
// concurrent use.
type Option func(*options)

type options struct {
	cost           func(context.Context, Call) int64
	chargeFailures bool
	skip           func(context.Context, Call) bool
	onRefusal      func(context.Context, Call, limiter.Result)
	onError        func(context.Context, Call, error)
	hide           bool
	dryRun         bool
	failOpen       bool
}

// Cost sets what a call costs. A call of cost 0 takes nothing. It passes, with the metadata that
// says what is left, unless its key is in debt, blocked, booked beyond now or above its limit: see
// [limiter.Limiter.AllowN]. A call that costs more than the limiter ever admits gets
// INVALID_ARGUMENT. One with a negative cost, which is a mistake in the function, gets INTERNAL. The
// default is 1. With [NewAll], set Rule.Cost instead.
func Cost(of func(context.Context, Call) int64) Option {
	if of == nil {
		panic("grpclimiter: Cost got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.cost = of }
}

// Skip lets a call pass without asking the limiter if these returns true. The default is to skip
// no call.
func Skip(these func(context.Context, Call) bool) Option {
	if these == nil {
		panic("grpclimiter: Skip got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.skip = these }
}

// ChargeFailures charges only calls that fail, such as logins with a wrong password. A call fails if
// the server's method, or an interceptor inside of this one, returns an error of any code. Each call
// is charged before it is handled, so that simultaneous calls do not exceed the limit. At most the
// limit can be in flight, even if all will succeed.
//
// If the call succeeds, the cost is given back before the client has the status. If the method
// panics, or the call's deadline ends first, it stays charged. It is given back where it was
// charged, which may be a fallback of [limiter.FailLocal]. On a fixed window it is given back only
// while that window runs, so a call that outlasts its window stays charged. [OnError] gets the
// error of giving it back.
//
// The metadata says what was left before that. Use [HideQuota] if clients would slow down because of
// it. New panics if the limiter has no method RefundOf. The default is to charge every call.
func ChargeFailures() Option {
	return func(o *options) { o.chargeFailures = true }
}

// OnRefusal calls f with each refusal before it is sent, for logs and metrics. With [DryRun] it
// calls f with each call that would have been refused.
func OnRefusal(f func(context.Context, Call, limiter.Result)) Option {
	if f == nil {
		panic("grpclimiter: OnRefusal got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.onRefusal = f }
}

// OnError calls f if there was no key or no decision, or if a refund failed. Clients learn only its
// [middleware.Cause]. The error matches [ErrNoKey], or is the limiter's. The interceptor does not call f
// if [limiter.FailOpen] let the call pass; only [limiter.WithObserver] sees that error. Nor does it call
// f for [limiter.ErrCanceled]: the caller left, or the call's own deadline left too little time.
//
// The default is to log the error by a [github.com/sqlimit/limiter/limiterslog.Log]: to slog.Default, at
// most once a minute for each interceptor and class of errors. ErrNoKey and [limiter.ErrExceedsCapacity] are
// warnings that say what to fix, at most one a minute for each Cause. The text of an
// error of [limiter.WithPolicyFor]'s function is logged as it is, so it must not contain a key. No other line has
// one. The text of an error of the application's key function is not logged: see [middleware.NoKey]. Nor is
// [limiter.ErrKeyBusy].
func OnError(f func(context.Context, Call, error)) Option {
	if f == nil {
		panic("grpclimiter: OnError got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.onError = f }
}

// HideQuota sends no policy, no quota and no limiter's name. Use it if the key is not the caller's
// own: the remaining logins of an account tell anybody that it is under attack. A refusal still has
// RetryInfo and retry-after. The default is to send them.
func HideQuota() Option {
	return func(o *options) { o.hide = true }
}

// DryRun decides and charges as usual and reports by [OnRefusal], [OnError] and
// [ResultFromContext], but lets every call pass, without metadata. Use it to try a policy on real
// traffic. The default is to refuse.
func DryRun() Option {
	return func(o *options) { o.dryRun = true }
}

// FailOpen lets calls pass when the store fails, instead of UNAVAILABLE. A store failure is an error
// for which [limiter.StoreFailed] returns true. [OnError] gets that error, and the metadata has no
// fields. A call without a key, a misconfigured store, a busy key and a canceled call never pass
// because of it. The default is to refuse.
//
// A limiter with [limiter.FailOpen] does the same by itself, for all its callers.
func FailOpen() Option {
	return func(o *options) { o.failOpen = true }
}
