package grpclimiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func TestSkippedCallsAreNotCharged(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, limiter.PerMinute(1))
	skip := grpclimiter.Skip(func(_ context.Context, call grpclimiter.Call) bool {
		return strings.HasSuffix(call.FullMethod, "/StreamingOutputCall")
	})
	s, client := serve(t, grpclimiter.New(l, oneKey, skip))
	for range 2 {
		header, err := kinds[1].call(t.Context(), client)
		wantCode(t, err, codes.OK, 0)
		wantHeader(t, header, "", "", "")
		if res, ok := grpclimiter.ResultFromContext(s.last); ok {
			t.Errorf("ResultFromContext = %+v", res)
		}
	}
	if got := left(t, l, "everybody"); got != 1 {
		t.Errorf("%d left, want 1", got)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                string
		store               limiter.Store
		refusals, failures  int
		decided, lastPassed bool
	}{
		{"ARefusal", memory.New(), 1, 0, true, false},
		{"AFailure", broken{errDown}, 0, 2, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newOn(t, tt.store, newClock(), "api", limiter.PerHour(1))
			refusals, failures := 0, 0
			s, client := serve(t, grpclimiter.New(l, oneKey, grpclimiter.DryRun(),
				grpclimiter.OnRefusal(func(_ context.Context, _ grpclimiter.Call, res limiter.Result) {
					if refusals++; res.Allowed {
						t.Errorf("OnRefusal got %+v", res)
					}
				}),
				grpclimiter.OnError(func(context.Context, grpclimiter.Call, error) { failures++ })))
			for range 2 {
				header, err := call(t, client)
				wantCode(t, err, codes.OK, 0)
				wantHeader(t, header, "", "", "")
			}
			if refusals != tt.refusals || failures != tt.failures {
				t.Errorf("%d refusals and %d failures, want %d and %d", refusals, failures, tt.refusals, tt.failures)
			}
			if res, ok := grpclimiter.ResultFromContext(s.last); ok != tt.decided || res.Allowed != tt.lastPassed {
				t.Errorf("ResultFromContext = %+v, %t", res, ok)
			}
		})
	}
}

func TestWrongProgramsPanicWithAdvice(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, limiter.PerMinute(1))
	rule := grpclimiter.Rule{Limiter: l, Key: oneKey}
	for want, f := range map[string]func(){
		"the limiter is nil":          func() { grpclimiter.New(nil, oneKey) },
		"the limiter is nil; pass":    func() { grpclimiter.New((*limiter.Limiter)(nil), oneKey) },
		"the key function is nil":     func() { grpclimiter.New(l, nil) },
		"an option is nil":            func() { grpclimiter.New(l, oneKey, nil) },
		"NewAll got the option Cost":  func() { grpclimiter.NewAll([]grpclimiter.Rule{rule}, grpclimiter.Cost(costIs(1))) },
		"pass grpclimiter.ClientIP()": func() { grpclimiter.NewAll([]grpclimiter.Rule{{Limiter: l}}) },
		"0 and 1 are both named": func() {
			grpclimiter.NewAll([]grpclimiter.Rule{rule, {Limiter: l, Key: grpclimiter.ClientIP()}})
		},
		"with the method RefundOf": func() {
			grpclimiter.New(struct{ handler.Limiter }{l}, oneKey, grpclimiter.ChargeFailures())
		},
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
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want one with %q", got, want)
				}
			}()
			f()
		})
	}
}

// noPolicy is a limiter that limiter.New did not make.
type noPolicy struct{ handler.Limiter }

func (noPolicy) Policy() limiter.Policy { return nil }

type broken struct{ err error }

func (b broken) Do(context.Context, limiter.Op) (limiter.State, error) { return limiter.State{}, b.err }

// hung is a store that returns only when the caller leaves.
type hung struct{ reached chan struct{} }

func (h hung) Do(ctx context.Context, _ limiter.Op) (limiter.State, error) {
	h.reached <- struct{}{}
	<-ctx.Done()
	return limiter.State{}, fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown, ctx.Err())
}

func atStore(t testing.TB, store limiter.Store, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	return newOn(t, store, newClock(), "api", limiter.PerMinute(5), opts...)
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
				t.Parallel()
				var seen error
				onError := grpclimiter.OnError(func(_ context.Context, call grpclimiter.Call, err error) {
					if seen = err; call.FullMethod != kind.method {
						t.Errorf("OnError got the method %s", call.FullMethod)
					}
				})
				s, client := serve(t, grpclimiter.New(atStore(t, broken{failure}), oneKey, onError))
				header, err := kind.call(t.Context(), client)
				wantCode(t, err, codes.Unavailable, time.Second)
				wantHeader(t, header, "", "", "1")
				for _, secret := range []string{"db7", "everybody", "limiter:"} {
					if strings.Contains(fmt.Sprint(err, header), secret) {
						t.Errorf("the status %v with %v contains %q", err, header, secret)
					}
				}
				if !errors.Is(seen, failure) || s.calls.Load() != 0 {
					t.Errorf("OnError got %v, want %v; %d calls", seen, failure, s.calls.Load())
				}
			})
		}
	}
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	noKey := func(context.Context, grpclimiter.Call) (string, error) { return "", errDown }
	for _, tt := range []struct {
		name    string
		failure error
		key     grpclimiter.KeyFunc
		code    codes.Code
	}{
		{"Down", errDown, oneKey, codes.OK},
		{"OutcomeUnknown", errLost, oneKey, codes.OK},
		{"Misconfigured", errSetup, oneKey, codes.Unavailable},
		{"KeyBusy", errBusy, oneKey, codes.Unavailable},
		{"NoKey", errDown, noKey, codes.InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			failures := 0
			onError := grpclimiter.OnError(func(context.Context, grpclimiter.Call, error) { failures++ })
			s, client := serve(t, grpclimiter.New(atStore(t, broken{tt.failure}), tt.key, grpclimiter.FailOpen(), onError))
			header, err := call(t, client)
			if status.Code(err) != tt.code || failures != 1 {
				t.Errorf("%v with %d failures, want %v with 1", err, failures, tt.code)
			}
			if tt.code != codes.OK {
				return
			}
			wantHeader(t, header, "", "", "")
			if res, ok := grpclimiter.ResultFromContext(s.last); !ok || !res.Allowed || res.Source != limiter.SourcePolicy {
				t.Errorf("ResultFromContext = %+v, %t", res, ok)
			}
		})
	}
}

func TestCallerThatLeaves(t *testing.T) {
	t.Parallel()
	store := hung{make(chan struct{})}
	var failures []error
	onError := grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) { failures = append(failures, err) })
	limit := grpclimiter.New(atStore(t, store, limiter.WithTimeout(time.Minute)), oneKey, grpclimiter.FailOpen(), onError)
	errs := make(chan error, 1) // of the server, which a client that left does not read
	deadline := time.Minute     // that the server sets
	server, s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		resp, err := limit.Unary(ctx, req, info, next)
		errs <- err
		return resp, err
	})), &service{}
	client := start(t, server, s, listen(t))

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-store.reached
		cancel()
	}()
	_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{})
	wantCode(t, err, codes.Canceled, 0)
	wantCode(t, <-errs, codes.Canceled, 0)

	deadline = 20 * time.Millisecond
	go func() { <-store.reached }()
	_, err = client.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	wantCode(t, err, codes.DeadlineExceeded, 0)
	wantCode(t, <-errs, codes.DeadlineExceeded, 0)
	if len(failures) > 0 || s.calls.Load() > 0 {
		t.Errorf("OnError got %v, and the service %d calls; want none", failures, s.calls.Load())
	}
}
