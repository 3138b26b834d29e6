package grpclimiter_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

var must = testenv.Must

type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) add(d time.Duration) { c.now = c.now.Add(d) }

func newOn(t testing.TB, store limiter.Store, c *clock, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(store, name, p, append(opts, limiter.WithClock(func() time.Time { return c.now }))...)
	must(t, err)
	return l
}

func newLimiter(t testing.TB, p limiter.Policy) *limiter.Limiter {
	t.Helper()
	return newOn(t, memory.New(), newClock(), "api", p)
}

func oneKey(context.Context, grpclimiter.Call) (string, error) { return "everybody", nil }

// service answers with empty messages, and counts the calls that reach it.
type service struct {
	testpb.UnimplementedTestServiceServer
	calls atomic.Int64
	last  context.Context // of the call, which a test may read after the call
	takes time.Duration   // how long a unary call takes
}

func (s *service) called(ctx context.Context) {
	s.calls.Add(1)
	s.last = ctx
}

func (s *service) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	s.called(ctx)
	<-time.After(s.takes)
	return &testpb.SimpleResponse{}, nil
}

// stream serves the other methods: it reads all messages and then answers.
func (s *service) stream(stream grpc.ServerStream, several bool) error {
	s.called(stream.Context())
	for {
		if err := stream.RecvMsg(&testpb.Empty{}); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	for range messagesOf[several] {
		if err := stream.SendMsg(&testpb.Empty{}); err != nil {
			return err
		}
	}
	return nil
}

// messagesOf is how many messages a side sends that may send several, or one.
var messagesOf = map[bool]int{true: 3, false: 1}

// client calls the service, also by its methods' names.
type client struct {
	testpb.TestServiceClient
	*grpc.ClientConn
}

// serve starts a server that is limited, and returns a client of it.
func serve(t testing.TB, limits ...*grpclimiter.Interceptor) (*service, client) {
	t.Helper()
	var opts []grpc.ServerOption
	for _, limit := range limits {
		opts = append(opts, grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	}
	server, s := grpc.NewServer(opts...), &service{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	desc := testpb.TestService_ServiceDesc
	desc.Streams = slices.Clone(desc.Streams)
	for i, d := range desc.Streams {
		desc.Streams[i].Handler = func(_ any, stream grpc.ServerStream) error { return s.stream(stream, d.ServerStreams) }
	}
	server.RegisterService(&desc, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		must(t, <-done)
	})
	return s, client{testpb.NewTestServiceClient(conn), conn}
}

// call makes a unary call with pairs of metadata, and returns the header of its answer.
func call(t testing.TB, client client, pairs ...string) (metadata.MD, error) {
	t.Helper()
	return kinds[0].call(metadata.AppendToOutgoingContext(t.Context(), pairs...), client)
}

// messages are all that clients learn about a call without a decision.
var messages = []string{
	"The rate limiter could not decide.",
	"The rate limiter was used wrongly.",
	"The request costs more than its rate limit ever admits.",
	"The request has no key for its rate limit.",
	"The client's address is unknown.",
	"A required header field is missing, empty or repeated.",
}

// wantCode checks an error: its code, its message if there was no decision, and its RetryInfo (0: none).
func wantCode(t testing.TB, err error, code codes.Code, retry time.Duration) {
	t.Helper()
	s := status.Convert(err)
	testenv.Equal(t, s.Code(), code, err)
	switch code {
	case codes.InvalidArgument, codes.Internal, codes.Unavailable:
		testenv.Equal(t, slices.Contains(messages, s.Message()), true, "the message is one of the list:", s.Message())
	}
	var got time.Duration
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			got = info.GetRetryDelay().AsDuration()
		}
	}
	testenv.Equal(t, got, retry, "the delay of RetryInfo")
}

// wantHeader checks response metadata; "" is for a name that must not be there.
func wantHeader(t testing.TB, header metadata.MD, policy, quota, retryAfter string) {
	t.Helper()
	for name, want := range map[string]string{"ratelimit-policy": policy, "ratelimit": quota, "retry-after": retryAfter} {
		got := header.Get(name)
		if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func left(t testing.TB, l *limiter.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	must(t, err)
	return res.Remaining
}
