package grpclimiter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
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

func TestHideQuota(t *testing.T) {
	t.Parallel()
	_, client := serve(t, grpclimiter.New(newLimiter(t, limiter.PerMinute(1)), oneKey, grpclimiter.HideQuota()))
	header, err := call(t, client)
	wantCode(t, err, codes.OK, 0)
	wantHeader(t, header, "", "", "")
	header, err = call(t, client)
	wantCode(t, err, codes.ResourceExhausted, time.Minute)
	wantHeader(t, header, "", "", "60")
	if got := status.Convert(err).Message(); got != "rate limit exceeded" {
		t.Errorf("message %q", got)
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
