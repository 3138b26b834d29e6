package middleware

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/limiterslog"
)

// Limiter makes the decisions; a [*limiter.Limiter] is one. It must be safe for concurrent use.
//
// Its errors should match the classes of package limiter, and must not contain a key. AllowN of 0 must
// charge nothing. To give costs back, it also needs the method RefundOf of [limiter.Limiter]: it must
// give nothing back for a Result that charged nothing, and must not credit a window that was not charged.
type Limiter interface {
	AllowN(ctx context.Context, key string, n int64) (limiter.Result, error)
	Name() string
	Policy() limiter.Policy
}

// refunder is a Limiter that can give costs back.
type refunder interface {
	RefundOf(ctx context.Context, key string, n int64, res limiter.Result) (bool, error)
}

// ErrNoKey means that a request has no key. It matches every error of [Rules.Decide] for which no limiter
// was asked.
var ErrNoKey = errors.New("limiter: the request has no key")

// Rule is one limit that requests of type R must pass. Its functions must be safe for concurrent use.
type Rule[R any] struct {
	Limiter Limiter
	// Key returns the key of a request.
	Key func(R) (string, error)
	// Cost returns what a request costs. If it is nil, every request costs 1.
	Cost func(R) int64
}

// Rules are the limits that a request must pass. Make them with [New] or [NewAll]. They are safe for
// concurrent use.
type Rules[R any] struct {
	rules []Rule[R]
	all   bool   // made by NewAll: AllowAll decides
	name  string // of the limiters, for the log
	log   limiterslog.Log
}

// New returns the rules of one limiter. With refunds it must be able to give costs back, which
// [Decision.GiveBack] does. New does no I/O. The error says what to fix.
func New[R any](rule Rule[R], refunds bool) (*Rules[R], error) {
	return newRules([]Rule[R]{rule}, refunds)
}

// NewAll returns the rules of several limiters, which decide together: see [limiter.AllowAll]. Each must
// be a [*limiter.Limiter] with a name of its own, because clients tell their limits apart by name. NewAll
// returns the error of [limiter.CheckAll] if they do not fit together.
func NewAll[R any](rules []Rule[R], refunds bool) (*Rules[R], error) {
	if n := len(rules); n < 1 || n > limiter.MaxClaims {
		return nil, fmt.Errorf("NewAll got %d rules; pass 1 to %d", n, limiter.MaxClaims)
	}
	r, err := newRules(rules, refunds)
	if err != nil {
		return nil, err
	}
	limiters := make([]*limiter.Limiter, len(rules))
	for i, rule := range rules {
		var ok bool
		if limiters[i], ok = rule.Limiter.(*limiter.Limiter); !ok {
			return nil, fmt.Errorf("the limiter of rule %d is a %T; pass a *limiter.Limiter", i, rule.Limiter)
		}
		name := limiters[i].Name()
		if j := slices.IndexFunc(limiters[:i], func(l *limiter.Limiter) bool { return l.Name() == name }); j >= 0 {
			return nil, fmt.Errorf("the limiters of the rules %d and %d are both named %q; give each rule a limiter with a name of its own", j, i, name)
		}
	}
	r.all = true
	return r, limiter.CheckAll(limiters...)
}

func newRules[R any](rules []Rule[R], refunds bool) (*Rules[R], error) {
	r := &Rules[R]{rules: append([]Rule[R](nil), rules...)}
	var names []string
	for _, rule := range rules {
		if v := reflect.ValueOf(rule.Limiter); rule.Limiter == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, errors.New("the limiter is nil; pass what limiter.New returned")
		}
		if rule.Key == nil {
			return nil, errors.New("the key function is nil; pass handler.ClientIP(), or for gRPC pass grpclimiter.ClientIP()")
		}
		if _, ok := rule.Limiter.(refunder); refunds && !ok {
			return nil, fmt.Errorf("ChargeFailures needs a limiter with the method RefundOf, which %T does not have; pass a *limiter.Limiter, or leave the option out", rule.Limiter)
		}
		names = append(names, rule.Limiter.Name())
	}
	r.name = strings.Join(names, ",")
	return r, nil
}

// Report passes err to onError, or logs it if onError is nil: why there was no decision, or why a cost
// was not given back. It ignores [limiter.ErrCanceled], because clients that leave could fill the log.
//
// Requests that cannot pass, because they have no key or cost too much, are warnings for each [Cause].
// Report logs the text of an [ErrNoKey] only if [NoKey] made it. See [limiterslog.Log] for how often it
// logs.
func (r *Rules[R]) Report(ctx context.Context, err error, onError func(error)) {
	cause := CauseOf(err)
	switch {
	case errors.Is(err, limiter.ErrCanceled):
	case onError != nil:
		onError(err)
	case cause == NoDecision || cause == Misused:
		r.log.Error(ctx, r.name, err)
	default:
		r.log.Warn(ctx, r.name, cause.String(), toLog(err))
	}
}
