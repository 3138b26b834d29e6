package grpclimiter

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/middleware"
)

// Interceptor asks for a decision before each call. [New] and [NewAll] make it. It may serve any
// number of servers, concurrently.
type Interceptor struct {
	options
	rules *middleware.Rules[request]
}

// request is a call with its context.
type request struct {
	context.Context
	Call
}

// Rule is one limit of [NewAll].
type Rule struct {
	Limiter *limiter.Limiter
	// Key returns the key of a call.
	Key KeyFunc
	// Cost returns what a call costs, as the function of the option [Cost] does. If it is nil, every
	// call costs 1.
	Cost func(context.Context, Call) int64
}

// New returns an interceptor that asks l before each call. The KeyFunc returns the key of the call.
// New does no I/O. A [*limiter.Limiter] is a handler.Limiter.
//
// New panics if l, key or an option is nil or out of range, because such a program is wrong from its
// start.
func New(l handler.Limiter, key KeyFunc, opts ...Option) *Interceptor {
	i := newInterceptor(opts)
	var err error
	i.rules, err = middleware.New(ruleOf(l, key, i.cost), i.chargeFailures)
	check(err, l)
	return i
}

// NewAll returns an interceptor, like [New], that asks several limiters for one decision. The call
// passes only if all of them have room, and only then it is charged to all of them: see
// [limiter.AllowAll].
//
// The metadata has all policies, in the order of the rules. A refusal names those that had no room,
// and its delay is the longest wait of those. [OnRefusal] and [ResultFromContext] have the decision
// as a whole.
//
// A rule whose Cost returns 0 takes nothing and is asked first, by [limiter.Limiter.PeekN]. It refuses a
// call if its key is in debt, blocked, booked beyond now or above its limit. Then the other limiters are not
// asked, and of them ratelimit has nothing.
//
// All keys are found before the limiters are asked. A call without one of them is charged to no
// limiter.
//
// NewAll panics like New, and if [limiter.CheckAll] returns an error for the limiters. It needs 1 to
// [limiter.MaxClaims] rules. All limiters must share one store, each needs a name of its own, and none may
// have a window with CountRejected. Instead of the option Cost, set Rule.Cost.
func NewAll(rules []Rule, opts ...Option) *Interceptor {
	i := newInterceptor(opts)
	if i.cost != nil {
		panic("grpclimiter: NewAll got the option Cost, which does not say of which rule; set Rule.Cost instead")
	}
	asked := make([]middleware.Rule[request], len(rules))
	limiters := make([]handler.Limiter, len(rules))
	for n, r := range rules {
		asked[n], limiters[n] = ruleOf(r.Limiter, r.Key, r.Cost), r.Limiter
	}
	var err error
	i.rules, err = middleware.NewAll(asked, i.chargeFailures)
	check(err, limiters...)
	return i
}

// ruleOf returns a rule. A function that is nil stays nil.
func ruleOf(l handler.Limiter, key KeyFunc, cost func(context.Context, Call) int64) middleware.Rule[request] {
	r := middleware.Rule[request]{Limiter: l}
	if key != nil {
		r.Key = func(r request) (string, error) { return key(r.Context, r.Call) }
	}
	if cost != nil {
		r.Cost = func(r request) int64 { return cost(r.Context, r.Call) }
	}
	return r
}

// check panics if there is an error, or if the metadata cannot describe a limiter.
func check(err error, limiters ...handler.Limiter) {
	if err != nil {
		panic("grpclimiter: " + err.Error())
	}
	for _, l := range limiters {
		handler.FieldItems(l, limiter.Result{})
	}
}

func newInterceptor(opts []Option) *Interceptor {
	i := &Interceptor{}
	for _, opt := range opts {
		if opt == nil {
			panic("grpclimiter: an option is nil; leave it out")
		}
		opt(&i.options)
	}
	return i
}

// Unary is a [grpc.UnaryServerInterceptor].
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	send := func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }
	call, begin := Call{info.FullMethod, req}, time.Now()
	ctx, d, err := i.decide(ctx, call, send)
	if err != nil {
		return nil, err
	}
	resp, err := next(ctx, req)
	if err == nil {
		i.giveBack(ctx, call, d, time.Since(begin))
	}
	return resp, err
}

// Stream is a [grpc.StreamServerInterceptor].
func (i *Interceptor) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	call, begin := Call{FullMethod: info.FullMethod}, time.Now()
	ctx, d, err := i.decide(ss.Context(), call, ss.SetHeader)
	if err != nil {
		return err
	}
	if err = next(srv, &stream{ss, ctx}); err == nil {
		i.giveBack(ctx, call, d, time.Since(begin))
	}
	return err
}

// stream is a stream whose context has the decision.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *stream) Context() context.Context { return s.ctx }

// decide asks for a decision and sends its metadata. It returns the context of a call that may pass,
// or the status that ends the call. The decision is nil if there was none.
func (i *Interceptor) decide(ctx context.Context, call Call, send func(metadata.MD) error) (context.Context, *middleware.Decision, error) {
	if i.skip != nil && i.skip(ctx, call) {
		return ctx, nil, nil
	}
	d := new(middleware.Decision)
	err := i.rules.Decide(ctx, request{ctx, call}, d)
	md := metadata.MD{}
	if err != nil {
		ctx, err = i.noDecision(ctx, call, d, err, md)
		d = nil
	} else {
		if !i.hide {
			addFields(md, d)
		}
		ctx, err = withResult(ctx, d.Result, true), i.refusal(ctx, call, d, md)
	}
	if len(md) > 0 && !i.dryRun {
		_ = send(md) // fails only if an outer interceptor has sent the header; the call then goes on without these fields
	}
	return ctx, d, err
}
