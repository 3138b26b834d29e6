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
)

// broken is a store that always fails.
type broken struct{ err error }

func (b broken) Do(context.Context, limiter.Op) (limiter.State, error) { return limiter.State{}, b.err }

// hung is a store that returns only when the caller leaves.
type hung struct{ reached chan struct{} }

func (h hung) Do(ctx context.Context, _ limiter.Op) (limiter.State, error) {
	h.reached <- struct{}{}
	<-ctx.Done()
	return limiter.State{}, fmt.Errorf("%w: %w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown, ctx.Err())
}

// atStore returns a limiter on a store.
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
	client := start(t, server, s, listen(t, "127.0.0.1:0"))

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
