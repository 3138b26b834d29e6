package grpclimiter_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// kinds are the four kinds of calls. Streams carry three messages.
var kinds = []kind{
	{"Unary", "/grpc.testing.TestService/UnaryCall", grpc.StreamDesc{}},
	{"ServerStream", "/grpc.testing.TestService/StreamingOutputCall", grpc.StreamDesc{ServerStreams: true}},
	{"ClientStream", "/grpc.testing.TestService/StreamingInputCall", grpc.StreamDesc{ClientStreams: true}},
	{"Bidi", "/grpc.testing.TestService/FullDuplexCall", grpc.StreamDesc{ServerStreams: true, ClientStreams: true}},
}

type kind struct {
	name, method string
	stream       grpc.StreamDesc
}

// call makes a call with empty messages, whose bytes are the same for all types.
func (k *kind) call(ctx context.Context, client client) (metadata.MD, error) {
	s, err := client.NewStream(ctx, &k.stream, k.method)
	if err != nil {
		return nil, err
	}
	for range messagesOf[k.stream.ClientStreams] {
		if err := s.SendMsg(&testpb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	for n := 0; err == nil; n++ {
		err = s.RecvMsg(&testpb.Empty{})
		if err == nil && !k.stream.ServerStreams || errors.Is(err, io.EOF) && n == messagesOf[k.stream.ServerStreams] {
			return s.Header()
		}
	}
	header, _ := s.Header()
	return header, err
}

func TestEveryKindOfCall(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClock()
			l := newOn(t, memory.New(), c, "api", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: 1500 * time.Millisecond})
			s, client := serve(t, grpclimiter.New(l, oneKey))
			for _, quota := range []string{`"api";r=1;t=2`, `"api";r=0;t=2`} {
				header, err := kind.call(t.Context(), client)
				wantCode(t, err, codes.OK, 0)
				wantHeader(t, header, `"api";q=2;w=3`, quota, "")
				if res, ok := grpclimiter.ResultFromContext(s.last); !ok || !res.Allowed || res.Limit != 2 {
					t.Errorf("ResultFromContext = %+v, %t", res, ok)
				}
			}
			header, err := kind.call(t.Context(), client)
			wantCode(t, err, codes.ResourceExhausted, 1500*time.Millisecond)
			wantHeader(t, header, `"api";q=2;w=3`, `"api";r=0;t=2`, "2")
			testenv.Equal(t, s.calls.Load(), 2, "calls of the service")
			c.add(1500 * time.Millisecond)
			wantCode(t, testenv.ErrorOf(kind.call(t.Context(), client)), codes.OK, 0)
		})
	}
}

func TestRetryDelayIsRoundedUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		interval, retry time.Duration
		seconds         string
	}{
		{time.Microsecond, time.Millisecond, "1"},
		{time.Millisecond, time.Millisecond, "1"},
		{time.Millisecond + 1, 2 * time.Millisecond, "1"},
		{time.Second - 1, time.Second, "1"},
		{time.Second + 1, 1001 * time.Millisecond, "2"},
	} {
		l := newLimiter(t, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: tt.interval})
		_, client := serve(t, grpclimiter.New(l, oneKey))
		wantCode(t, testenv.ErrorOf(call(t, client)), codes.OK, 0)
		header, err := call(t, client)
		wantCode(t, err, codes.ResourceExhausted, tt.retry)
		wantHeader(t, header, `"api";q=1;w=`+tt.seconds, `"api";r=0;t=`+tt.seconds, tt.seconds)
	}
}

func TestCostsOfMessages(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, limiter.FixedWindow{Limit: 10, Window: time.Hour})
	size := func(_ context.Context, call grpclimiter.Call) int64 {
		if r, ok := call.Request.(*testpb.SimpleRequest); ok {
			return int64(r.GetResponseSize())
		}
		return 4 // a stream, of which no message was read
	}
	var failures []error
	limit := grpclimiter.New(l, oneKey, grpclimiter.Cost(size), grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) {
		failures = append(failures, err)
	}))
	s, client := serve(t, limit)
	for _, tt := range []struct {
		cost int32
		code codes.Code
		left int64
	}{
		{0, codes.OK, 10},
		{7, codes.OK, 3},
		{4, codes.ResourceExhausted, 3},
		{0, codes.OK, 3},
		{11, codes.InvalidArgument, 3}, // it could never pass
		{-1, codes.Internal, 3},
	} {
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: tt.cost})
		retry := time.Duration(0)
		if tt.code == codes.ResourceExhausted {
			retry = time.Hour
		}
		wantCode(t, err, tt.code, retry)
		testenv.Equal(t, left(t, l, "everybody"), tt.left, "left after cost", tt.cost)
	}
	testenv.Equal(t, testenv.ErrorOf(kinds[1].call(t.Context(), client)) != nil, true, "a stream of cost 4 fails with 3 left")
	testenv.Equal(t, s.calls.Load(), 3, "calls of the service")
	if len(failures) != 2 || !errors.Is(failures[0], limiter.ErrExceedsCapacity) || !errors.Is(failures[1], limiter.ErrInvalid) {
		t.Errorf("OnError got %v, want ErrExceedsCapacity and ErrInvalid", failures)
	}
}

func TestChainedInterceptors(t *testing.T) {
	t.Parallel()
	first := newOn(t, memory.New(), newClock(), "first", limiter.PerMinute(5))
	second := newOn(t, memory.New(), newClock(), "second", limiter.PerMinute(1))
	s, client := serve(t, grpclimiter.New(first, oneKey), grpclimiter.New(second, oneKey))
	header, err := call(t, client)
	wantCode(t, err, codes.OK, 0)
	testenv.Equal(t, len(header.Get("ratelimit")), 2, "lines of ratelimit")
	res, _ := grpclimiter.ResultFromContext(s.last)
	testenv.Equal(t, res.Limit, 1, "the limit of ResultFromContext, which is the second's")
	wantCode(t, testenv.ErrorOf(call(t, client)), codes.ResourceExhausted, time.Minute)
	testenv.Equal(t, left(t, first, "everybody"), 3, "left of the first: the refused call stays charged")
}

// burstAndDay returns two rules for everybody: a bucket of 3, and a window of limit.
func burstAndDay(t testing.TB, limit int64) []grpclimiter.Rule {
	t.Helper()
	store, c := memory.New(), newClock()
	return []grpclimiter.Rule{
		{Limiter: newOn(t, store, c, "burst", limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second}), Key: oneKey},
		{Limiter: newOn(t, store, c, "day", limiter.FixedWindow{Limit: limit, Window: 24 * time.Hour}), Key: oneKey},
	}
}

func costIs(n int64) func(context.Context, grpclimiter.Call) int64 {
	return func(context.Context, grpclimiter.Call) int64 { return n }
}

const bothPolicies = `"burst";q=3;w=6, "day";q=5;w=86400`

func TestRefusalNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		cost          int64 // of burst
		opts          []grpclimiter.Option
		retry         time.Duration
		message       string
		policy        string
		passed, quota string // of a call that passes, and of the refusal
	}{
		{"every limit without room", 1, nil, 12 * time.Hour, "rate limit exceeded: burst, day", bothPolicies, `"burst";r=2;t=2, "day";r=4;t=43200`, `"burst";r=0;t=12, "day";r=0;t=43200`},
		{"no limit that was not asked", 0, nil, 10 * time.Second, "rate limit exceeded: burst", bothPolicies, `"burst";r=3, "day";r=4;t=43200`, `"burst";r=0;t=10`},
		{"no limit with HideQuota", 1, []grpclimiter.Option{grpclimiter.HideQuota()}, 12 * time.Hour, "rate limit exceeded", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := burstAndDay(t, 5)
			rules[0].Cost = costIs(tt.cost)
			_, client := serve(t, grpclimiter.NewAll(rules, tt.opts...))
			header, err := call(t, client)
			wantCode(t, err, codes.OK, 0)
			wantHeader(t, header, tt.policy, tt.passed, "")
			must(t, rules[0].Limiter.Block(t.Context(), "everybody", 10*time.Second))
			must(t, testenv.ErrorOf(rules[1].Limiter.AllowN(t.Context(), "everybody", 4)))
			header, err = call(t, client)
			wantCode(t, err, codes.ResourceExhausted, tt.retry)
			wantHeader(t, header, tt.policy, tt.quota, strconv.Itoa(int(tt.retry.Seconds())))
			testenv.Equal(t, status.Convert(err).Message(), tt.message, "message")
		})
	}
}

func TestOnlyFailuresAreCharged(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			rules := burstAndDay(t, 5)
			rules[1].Cost = costIs(2)
			_, client := serve(t, grpclimiter.NewAll(rules, grpclimiter.ChargeFailures()))
			want := func(burst, day int64) {
				t.Helper()
				testenv.Equal(t, []int64{left(t, rules[0].Limiter, "everybody"), left(t, rules[1].Limiter, "everybody")}, []int64{burst, day}, "left")
			}
			for range 4 {
				header, err := kind.call(t.Context(), client)
				wantCode(t, err, codes.OK, 0)
				wantHeader(t, header, bothPolicies, `"burst";r=2;t=2, "day";r=3;t=43200`, "")
				want(3, 5)
			}
			for n := range int64(2) { // the service does not have this method
				wantCode(t, testenv.ErrorOf(client.EmptyCall(t.Context(), &testpb.Empty{})), codes.Unimplemented, 0)
				want(2-n, 3-2*n)
			}
			wantCode(t, testenv.ErrorOf(kind.call(t.Context(), client)), codes.ResourceExhausted, 12*time.Hour)
			want(1, 1)
		})
	}
}

func TestLateRefund(t *testing.T) {
	t.Parallel()
	// The cost is back after 1 ms of the server's time; the clock of the limiter stands still.
	l := newLimiter(t, limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Millisecond})
	s, client := serve(t, grpclimiter.New(l, oneKey, grpclimiter.ChargeFailures()))
	s.takes = 2 * time.Millisecond
	wantCode(t, testenv.ErrorOf(call(t, client)), codes.OK, 0)
	testenv.Equal(t, left(t, l, "everybody"), 4, "left")
}

func TestFailedRefundIsReported(t *testing.T) {
	t.Parallel()
	l := newOn(t, broken{memory.New(), limiter.OpRefund, errDown}, newClock(), "api", limiter.PerMinute(5))
	var seen []error
	_, client := serve(t, grpclimiter.New(l, oneKey, grpclimiter.ChargeFailures(),
		grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) { seen = append(seen, err) })))
	wantCode(t, testenv.ErrorOf(call(t, client)), codes.OK, 0)
	testenv.Equal(t, len(seen), 1, "errors that OnError got:", seen)
	testenv.ErrorIs(t, errors.Join(seen...), errDown, "OnError")
}
