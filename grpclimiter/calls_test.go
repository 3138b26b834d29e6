package grpclimiter_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/memory"
)

// kinds are the four kinds of calls. Streams carry three messages.
var kinds = []struct {
	name, method string
	call         func(context.Context, testpb.TestServiceClient) (metadata.MD, error)
}{
	{"Unary", "/grpc.testing.TestService/UnaryCall", func(ctx context.Context, c testpb.TestServiceClient) (header metadata.MD, err error) {
		_, err = c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header))
		return header, err
	}},
	{"ServerStream", "/grpc.testing.TestService/StreamingOutputCall", func(ctx context.Context, c testpb.TestServiceClient) (metadata.MD, error) {
		s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
		if err != nil {
			return nil, err
		}
		return drain(s, s.Recv)
	}},
	{"ClientStream", "/grpc.testing.TestService/StreamingInputCall", func(ctx context.Context, c testpb.TestServiceClient) (metadata.MD, error) {
		s, err := c.StreamingInputCall(ctx)
		if err != nil {
			return nil, err
		}
		for range 3 {
			if err := s.Send(&testpb.StreamingInputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
		_, err = s.CloseAndRecv()
		header, _ := s.Header()
		return header, err
	}},
	{"Bidi", "/grpc.testing.TestService/FullDuplexCall", func(ctx context.Context, c testpb.TestServiceClient) (metadata.MD, error) {
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			return nil, err
		}
		for range 3 {
			if err := s.Send(&testpb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
		if err := s.CloseSend(); err != nil {
			return nil, err
		}
		return drain(s, s.Recv)
	}},
}

// drain receives three messages and the end of a stream.
func drain[M any](s grpc.ClientStream, receive func() (M, error)) (metadata.MD, error) {
	for n := 0; ; n++ {
		_, err := receive()
		if err == nil {
			continue
		}
		header, _ := s.Header()
		switch {
		case !errors.Is(err, io.EOF):
			return header, err
		case n != 3:
			return header, errors.New("the stream does not have 3 messages")
		}
		return header, nil
	}
}

func TestEveryKindOfCall(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
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
			if n := s.calls.Load(); n != 2 {
				t.Errorf("the service was called %d times, want 2", n)
			}
			c.add(1500 * time.Millisecond)
			_, err = kind.call(t.Context(), client)
			wantCode(t, err, codes.OK, 0)
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
		_, err := call(t, client)
		wantCode(t, err, codes.OK, 0)
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
		if got := left(t, l, "everybody"); got != tt.left {
			t.Errorf("after cost %d: %d left, want %d", tt.cost, got, tt.left)
		}
	}
	if _, err := kinds[1].call(t.Context(), client); err == nil {
		t.Error("a stream of cost 4 passed with 3 left")
	}
	if n := s.calls.Load(); n != 3 {
		t.Errorf("the service was called %d times, want 3", n)
	}
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
	if got := header.Get("ratelimit"); len(got) != 2 {
		t.Errorf("ratelimit: %q, want two lines", got)
	}
	if res, _ := grpclimiter.ResultFromContext(s.last); res.Limit != 1 {
		t.Errorf("ResultFromContext is that of the limit %d, want the second's", res.Limit)
	}
	_, err = call(t, client)
	wantCode(t, err, codes.ResourceExhausted, time.Minute)
	if got := left(t, first, "everybody"); got != 3 {
		t.Errorf("the first has %d left, want 3: the refused call stays charged", got)
	}
}
