package grpclimiter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/limiterslog"
)

// Interceptor asks for a decision before each call. [New] and [NewAll] make it. It may serve any
// number of servers, concurrently.
type Interceptor struct {
	options
	rules []rule
	all   bool   // made by NewAll: AllowAll decides
	name  string // of the limiters, for the log
	log   limiterslog.Log
}

// rule is a limiter with the key and the cost of a call.
type rule struct {
	limiter handler.Limiter
	key     KeyFunc
	cost    func(context.Context, Call) int64 // nil: every call costs 1
	refunds refunder                          // only with ChargeFailures
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
	handler.New(l, noRequest) // panics if it cannot use l
	i.add(l, key, i.cost)
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
// A rule whose Cost returns 0 takes nothing and is not asked: only its policy is in the metadata. If
// all return 0, the call passes, and the interceptor asks each limiter what is left.
//
// All keys are found before the limiters are asked. A call without one of them is charged to no
// limiter.
//
// NewAll panics like New, and in the same cases as [handler.NewAll]: it needs 1 to
// [limiter.MaxClaims] rules whose limiters share one store, and none may have a window with
// CountRejected. Instead of the option Cost, set Rule.Cost.
func NewAll(rules []Rule, opts ...Option) *Interceptor {
	i := newInterceptor(opts)
	i.all = true
	if i.cost != nil {
		panic("grpclimiter: NewAll got the option Cost, which does not say of which rule; set Rule.Cost instead")
	}
	checked := make([]handler.Rule, len(rules))
	for n, r := range rules {
		checked[n] = handler.Rule{Limiter: r.Limiter, Key: noRequest}
	}
	handler.NewAll(checked) // panics if it cannot use the limiters together
	for _, r := range rules {
		i.add(r.Limiter, r.Key, r.Cost)
	}
	return i
}

// noRequest stands for the key function where package handler checks limiters. It is never called.
func noRequest(*http.Request) (string, error) { return "", ErrNoKey }

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

// add adds a rule with a limiter that was checked.
func (i *Interceptor) add(l handler.Limiter, key KeyFunc, cost func(context.Context, Call) int64) {
	if key == nil {
		panic("grpclimiter: the key function is nil; pass grpclimiter.ClientIP(), or a function of your own")
	}
	r := rule{limiter: l, key: key, cost: cost}
	if i.chargeFailures {
		var ok bool
		if r.refunds, ok = l.(refunder); !ok {
			panic(fmt.Sprintf("grpclimiter: ChargeFailures needs a limiter with the method RefundOf, which %T does not have; pass a *limiter.Limiter, or leave the option out", l))
		}
	}
	i.rules = append(i.rules, r)
	i.name = strings.TrimPrefix(i.name+","+l.Name(), ",")
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
func (i *Interceptor) decide(ctx context.Context, call Call, send func(metadata.MD) error) (context.Context, *decision, error) {
	if i.skip != nil && i.skip(ctx, call) {
		return ctx, nil, nil
	}
	d := &decision{}
	err := i.prepare(ctx, call, d)
	if err == nil {
		err = i.ask(ctx, d)
	}
	md := metadata.MD{}
	if err != nil {
		d = nil
		ctx, err = i.undecided(ctx, call, err, md)
	} else {
		if !i.hide {
			d.addFields(md)
		}
		ctx, err = withResult(ctx, d.result, true), i.refusal(ctx, call, d, md)
	}
	if len(md) > 0 && !i.dryRun {
		_ = send(md) // fails only if an outer interceptor has sent the header; the call then goes on without these fields
	}
	return ctx, d, err
}

// prepare finds the keys and the costs of a call.
func (i *Interceptor) prepare(ctx context.Context, call Call, d *decision) error {
	d.parts = make([]part, len(i.rules))
	for n := range d.parts {
		p := &d.parts[n]
		p.rule = &i.rules[n]
		var err error
		if p.key, err = p.rule.key(ctx, call); err == nil && p.key == "" {
			err = noKey("the key function returned an empty key")
		}
		if err != nil {
			if !errors.Is(err, ErrNoKey) {
				err = fmt.Errorf("%w: %w", ErrNoKey, err)
			}
			return err
		}
		if p.cost = 1; p.rule.cost != nil {
			p.cost = p.rule.cost(ctx, call)
		}
	}
	return nil
}
