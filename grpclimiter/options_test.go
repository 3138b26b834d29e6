package grpclimiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	skip := grpclimiter.Skip(func(_ context.Context, call grpclimiter.Call) bool {
		return call.FullMethod == kinds[0].method || call.FullMethod == kinds[1].method
	})
	noKey := func(context.Context, grpclimiter.Call) (string, error) { return "", errDown }
	passed := limiter.Result{Allowed: true, Source: limiter.SourcePolicy, Taken: 1}
	for name, tt := range map[string]struct {
		failure            error // of the store
		key                grpclimiter.KeyFunc
		opt                grpclimiter.Option
		code               codes.Code
		refusals, failures int // of two calls
		result             limiter.Result
	}{
		"SkippedCallsAreNotCharged": {nil, oneKey, skip, codes.OK, 0, 0, limiter.Result{}},
		"DryRunOfARefusal":          {nil, oneKey, grpclimiter.DryRun(), codes.OK, 1, 0, limiter.Result{Source: limiter.SourceStore, Limit: 1}},
		"DryRunOfAFailure":          {errDown, oneKey, grpclimiter.DryRun(), codes.OK, 0, 2, limiter.Result{}},
		"FailOpenDown":              {errDown, oneKey, grpclimiter.FailOpen(), codes.OK, 0, 2, passed},
		"FailOpenOutcomeUnknown":    {errLost, oneKey, grpclimiter.FailOpen(), codes.OK, 0, 2, passed},
		"FailOpenMisconfigured":     {errSetup, oneKey, grpclimiter.FailOpen(), codes.Unavailable, 0, 2, limiter.Result{}},
		"FailOpenKeyBusy":           {errBusy, oneKey, grpclimiter.FailOpen(), codes.Unavailable, 0, 2, limiter.Result{}},
		"FailOpenNoKey":             {errDown, noKey, grpclimiter.FailOpen(), codes.InvalidArgument, 0, 2, limiter.Result{}},
	} {
		t.Run(name, func(t *testing.T) {
			store := limiter.Store(memory.New())
			if tt.failure != nil {
				store = broken{memory.New(), limiter.OpTake, tt.failure}
			}
			l := newOn(t, store, newClock(), "api", limiter.PerHour(1))
			refusals, failures := 0, 0
			s, client := serve(t, grpclimiter.New(l, tt.key, tt.opt,
				grpclimiter.OnRefusal(func(_ context.Context, _ grpclimiter.Call, res limiter.Result) {
					refusals++
					testenv.Equal(t, res.Allowed, false, "OnRefusal got", res)
				}),
				grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) {
					if failures++; errors.Is(err, handler.ErrNoKey) != (tt.code == codes.InvalidArgument) {
						t.Errorf("OnError got %v", err)
					}
				})))
			for _, kind := range kinds[:2] {
				header, err := kind.call(t.Context(), client)
				testenv.Equal(t, status.Code(err), tt.code, err)
				if tt.code == codes.OK {
					wantHeader(t, header, "", "", "")
				}
			}
			testenv.Equal(t, []int{refusals, failures}, []int{tt.refusals, tt.failures}, "refusals and failures")
			if tt.code != codes.OK {
				return
			}
			res, ok := grpclimiter.ResultFromContext(s.last)
			if ok != (tt.result != limiter.Result{}) || res.Allowed != tt.result.Allowed || res.Source != tt.result.Source {
				t.Errorf("ResultFromContext = %+v, %t; want %+v", res, ok, tt.result)
			}
			testenv.Equal(t, name == "SkippedCallsAreNotCharged" && left(t, l, "everybody") != 1, false, "a skipped call is charged")
		})
	}
}

func TestWrongProgramsPanicWithAdvice(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, limiter.PerMinute(1))
	rule := grpclimiter.Rule{Limiter: l, Key: oneKey}
	for want, f := range map[string]func(){
		"the limiter is nil":                func() { grpclimiter.New(nil, oneKey) },
		"the limiter is nil; pass":          func() { grpclimiter.New((*limiter.Limiter)(nil), oneKey) },
		"the key function is nil":           func() { grpclimiter.New(l, nil) },
		"an option is nil":                  func() { grpclimiter.New(l, oneKey, nil) },
		"NewAll got the option Cost":        func() { grpclimiter.NewAll([]grpclimiter.Rule{rule}, grpclimiter.Cost(costIs(1))) },
		"pass grpclimiter.ClientIP()":       func() { grpclimiter.NewAll([]grpclimiter.Rule{{Limiter: l}}) },
		"0 and 1 are both named":            func() { grpclimiter.NewAll([]grpclimiter.Rule{rule, rule}) },
		"with the method RefundOf":          func() { grpclimiter.New(struct{ handler.Limiter }{l}, oneKey, grpclimiter.ChargeFailures()) },
		"the limiter has no policy":         func() { grpclimiter.New(noPolicy{l}, oneKey) },
		"Cost got nil":                      func() { grpclimiter.Cost(nil) },
		"Skip got nil":                      func() { grpclimiter.Skip(nil) },
		"OnRefusal got nil":                 func() { grpclimiter.OnRefusal(nil) },
		"OnError got nil":                   func() { grpclimiter.OnError(nil) },
		"Join got no keys":                  func() { grpclimiter.Join() },
		"Join got a nil key":                func() { grpclimiter.Join(oneKey, nil) },
		`"x api key", which is not a valid`: func() { grpclimiter.Metadata("x api key") },
		`"", which is not a valid`:          func() { grpclimiter.Metadata("") },
		`"host", which no call has`:         func() { grpclimiter.Metadata("host") },
		`"TE", which no call has`:           func() { grpclimiter.Metadata("TE") },
		`"Connection", which no call has`:   func() { grpclimiter.Metadata("Connection") },
		"gRPC keeps names":                  func() { grpclimiter.Metadata("grpc-timeout") },
		"a list that clients begin":         func() { grpclimiter.Metadata("X-Forwarded-For") },
	} {
		t.Run(want, func(t *testing.T) { testenv.Panics(t, want, f) })
	}
}

// noPolicy is a limiter that limiter.New did not make.
type noPolicy struct{ handler.Limiter }

func (noPolicy) Policy() limiter.Policy { return nil }

// broken is a store in memory that fails for operations of a kind.
type broken struct {
	*memory.Store
	kind limiter.OpKind
	err  error
}

func (b broken) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.Kind == b.kind {
		return limiter.State{}, b.err
	}
	return b.Store.Do(ctx, op)
}

// hung is a store that returns only when the caller leaves.
type hung struct{}

func (hung) Do(ctx context.Context, _ limiter.Op) (limiter.State, error) {
	<-ctx.Done()
	return limiter.State{}, fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown, ctx.Err())
}

var (
	errDown  = fmt.Errorf("%w: dial tcp db7.internal:5432", limiter.ErrNotApplied)
	errLost  = fmt.Errorf("%w: dial tcp db7.internal:5432", limiter.ErrOutcomeUnknown)
	errSetup = fmt.Errorf("%w: no tables on db7.internal", limiter.ErrMisconfigured)
	errBusy  = fmt.Errorf("%w: %w: on db7.internal", limiter.ErrNotApplied, limiter.ErrKeyBusy)
)

func TestNoDecisionIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errDown, errLost, errSetup, errBusy} {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				var seen error
				onError := grpclimiter.OnError(func(_ context.Context, call grpclimiter.Call, err error) {
					seen = err
					testenv.Equal(t, call.FullMethod, kind.method, "the method of OnError")
				})
				l := newOn(t, broken{memory.New(), limiter.OpTake, failure}, newClock(), "api", limiter.PerMinute(5))
				s, client := serve(t, grpclimiter.New(l, oneKey, onError))
				header, err := kind.call(t.Context(), client)
				wantCode(t, err, codes.Unavailable, time.Second)
				wantHeader(t, header, "", "", "1")
				for _, secret := range []string{"db7", "everybody", "limiter:"} {
					testenv.Equal(t, strings.Contains(fmt.Sprint(err, header), secret), false, "the status", err, "with", header, "contains", secret)
				}
				testenv.ErrorIs(t, seen, failure, "OnError")
				testenv.Equal(t, s.calls.Load(), 0, "calls")
			})
		}
	}
}

func TestCallerThatLeaves(t *testing.T) {
	t.Parallel()
	onError := grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) { t.Errorf("OnError got %v", err) })
	next := func(context.Context, any) (any, error) { return nil, errors.New("the service is called") }
	synctest.Test(t, func(t *testing.T) {
		l := newOn(t, hung{}, newClock(), "api", limiter.PerMinute(5), limiter.WithTimeout(time.Minute))
		limit := grpclimiter.New(l, oneKey, grpclimiter.FailOpen(), onError)
		for want, leaves := range map[codes.Code]time.Duration{codes.Canceled: 1, codes.DeadlineExceeded: time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			defer time.AfterFunc(leaves, cancel).Stop()
			wantCode(t, testenv.ErrorOf(limit.Unary(ctx, nil, &grpc.UnaryServerInfo{}, next)), want, 0)
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	const method, client = "/grpc.testing.TestService/UnaryCall", "192.0.2.1:50000"
	apiKey := grpclimiter.Metadata("X-Api-Key")
	methodAndKey := grpclimiter.Join(grpclimiter.Method(), apiKey)
	proxies := grpclimiter.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/24")))
	for _, tt := range []struct {
		name  string
		key   grpclimiter.KeyFunc
		peer  string
		pairs []string // of metadata
		want  string   // "": the call has none
	}{
		{"Metadata", apiKey, client, []string{"x-api-key", "k1"}, "k1"},
		{"BinaryMetadata", grpclimiter.Metadata("id-bin"), client, []string{"id-bin", "\x00\xff"}, "\x00\xff"},
		{"EmptyMetadata", apiKey, client, []string{"x-api-key", ""}, ""},
		{"MetadataTwice", apiKey, client, []string{"x-api-key", "k1", "x-api-key", "k2"}, ""},
		{"Method", grpclimiter.Method(), client, nil, method},
		{"Join", methodAndKey, client, []string{"x-api-key", "k1"}, "35:" + method + "2:k1"},
		{"JoinWithoutOne", methodAndKey, client, nil, ""},
		{"IPv6CountsByAnotherPrefix", grpclimiter.ClientIP(handler.IPv6Prefix(48)), "[2001:db8:1:2:3:4:5:6]:50000", nil, "2001:db8:1::/48"},
		{"AForwardedAddressWithoutTrustIsNotRead", grpclimiter.ClientIP(), client, []string{"x-forwarded-for", "203.0.113.7"}, "192.0.2.1"},
		{"WhatTheClientWroteIsLeftOfTheProxys", proxies, "10.0.0.1:443", []string{"x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		{"SeveralValuesAreOneList", proxies, "10.0.0.1:443", []string{"x-forwarded-for", "1.1.1.1", "x-forwarded-for", "203.0.113.7"}, "203.0.113.7"},
		{"TrustedHops", grpclimiter.ClientIP(handler.TrustedHops(2)), client, []string{"x-forwarded-for", "1.1.1.1, 203.0.113.7, 198.51.100.1"}, "203.0.113.7"},
		{"AddressHeaderTwice", grpclimiter.ClientIP(handler.AddressHeader("X-Api-Key")), client, []string{"x-api-key", "1.1.1.1", "x-api-key", "203.0.113.7"}, ""},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(tt.pairs...))
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tt.peer))})
		got, err := tt.key(ctx, grpclimiter.Call{FullMethod: method})
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !errors.Is(err, grpclimiter.ErrNoKey) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

func emptyKey(context.Context, grpclimiter.Call) (string, error) { return "", nil }

func TestMistakes(t *testing.T) {
	const secret = "alice-9f31c2-and-more@example.com"
	tenant := grpclimiter.Metadata("x-tenant")
	for _, c := range []struct {
		name    string
		key     grpclimiter.KeyFunc
		cost    int64
		message string
		fix     string // in the log
	}{
		{"TrustedHops without a proxy", grpclimiter.ClientIP(handler.TrustedHops(1)), 1, "The client's address is unknown.", "without a proxy, leave TrustedHops out"},
		{"no metadata", tenant, 1, "A required header field is missing, empty or repeated.", "the metadata has 0 values of x-tenant; clients must send one"},
		{"an empty part of a key", grpclimiter.Join(oneKey, emptyKey), 1, "The request has no key for its rate limit.", "every function must return a key"},
		{"a cost above the capacity", oneKey, 100, "The request costs more than its rate limit ever admits.", "the cost is 100; the policy admits at most 60; raise the limit, or let Cost return less"},
		{"an error that the application wraps", func(ctx context.Context, call grpclimiter.Call) (string, error) {
			_, err := tenant(ctx, call)
			return "", fmt.Errorf("%s: %w", secret, err)
		}, 1, "A required header field is missing, empty or repeated.", "the metadata has 0 values of x-tenant; clients must send one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := testenv.Logged(t)
			l := newLimiter(t, limiter.PerMinute(60))
			_, client := serve(t, grpclimiter.New(l, c.key, grpclimiter.Cost(costIs(c.cost))))
			for range 2 {
				_, err := call(t, client, "x-api-key", secret, "x-api-key", secret)
				wantCode(t, err, codes.InvalidArgument, 0)
				testenv.Equal(t, status.Convert(err).Message(), c.message, "message")
			}
			text := log.String()
			testenv.Equal(t, strings.Count(text, "\n"), 1, "lines of the log")
			testenv.Contains(t, text, "level=WARN", "limiter=api", c.fix)
			testenv.Equal(t, keyleak.Of(secret).In(log.Bytes()), nil, "traces of the key in the log", text)
		})
	}
}
