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

func TestHideQuotaTellsOnlyTheDelay(t *testing.T) {
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

func TestADryRunReportsAndLetsEveryCallPass(t *testing.T) {
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
			l, err := limiter.New(tt.store, "api", limiter.PerHour(1))
			if err != nil {
				t.Fatal(err)
			}
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
	rejecting := newLimiter(t, limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true})
	rule := grpclimiter.Rule{Limiter: l, Key: oneKey}
	for want, f := range map[string]func(){
		"the limiter is nil":          func() { grpclimiter.New(nil, oneKey) },
		"the limiter is nil; pass":    func() { grpclimiter.New((*limiter.Limiter)(nil), oneKey) },
		"the key function is nil":     func() { grpclimiter.New(l, nil) },
		"an option is nil":            func() { grpclimiter.New(l, oneKey, nil) },
		"got 0 rules":                 func() { grpclimiter.NewAll(nil) },
		"got 9 rules":                 func() { grpclimiter.NewAll(make([]grpclimiter.Rule, 9)) },
		"NewAll got the option Cost":  func() { grpclimiter.NewAll([]grpclimiter.Rule{rule}, grpclimiter.Cost(costIs(1))) },
		"pass grpclimiter.ClientIP()": func() { grpclimiter.NewAll([]grpclimiter.Rule{{Limiter: l}}) },
		"CountRejected":               func() { grpclimiter.NewAll([]grpclimiter.Rule{{Limiter: rejecting, Key: oneKey}}) },
		"pass limiters of one store": func() {
			elsewhere := newOn(t, memory.New(), newClock(), "elsewhere", limiter.PerMinute(1))
			grpclimiter.NewAll([]grpclimiter.Rule{rule, {Limiter: elsewhere, Key: oneKey}})
		},
		`0 and 1 are both named "api"; give each rule a limiter with a name of its own`: func() {
			grpclimiter.NewAll([]grpclimiter.Rule{rule, {Limiter: l, Key: grpclimiter.ClientIP()}})
		},
		"a name of its own": func() { // one name, two policies
			grpclimiter.NewAll([]grpclimiter.Rule{rule, {Limiter: newLimiter(t, limiter.PerMinute(2)), Key: oneKey}})
		},
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
