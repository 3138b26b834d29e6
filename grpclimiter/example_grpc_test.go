package grpclimiter_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func mustLimiter(name string, p limiter.Policy) *limiter.Limiter {
	l, err := limiter.New(memory.New(), name, p)
	if err != nil {
		panic(err)
	}
	return l
}

// dial serves a server on this machine and returns a client of its health service.
func dial(server *grpc.Server) grpc_health_v1.HealthClient {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return grpc_health_v1.NewHealthClient(conn)
}

func Example() {
	calls := mustLimiter("api", limiter.PerHour(2)) // in your program: limiter.New with a store of package postgres
	limit := grpclimiter.New(calls, grpclimiter.ClientIP())
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream),
	)
	defer server.Stop()
	client := dial(server) // of the service that you register

	for range 3 {
		var header metadata.MD
		_, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header))
		fmt.Println(status.Code(err), header["ratelimit"], header["retry-after"])
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				fmt.Println("retry in", retry.GetRetryDelay().AsDuration().Round(time.Minute))
			}
		}
	}
	// Output:
	// OK ["api";r=1;t=1800] []
	// OK ["api";r=0;t=1800] []
	// ResourceExhausted ["api";r=0;t=1800] [1800]
	// retry in 30m0s
}

// Each client has one limit for each method. Health checks are free.
func ExampleJoin() {
	limit := grpclimiter.New(mustLimiter("api", limiter.PerMinute(100)),
		grpclimiter.Join(grpclimiter.Method(), grpclimiter.ClientIP(
			handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/28")))),
		grpclimiter.Skip(func(_ context.Context, call grpclimiter.Call) bool {
			return strings.HasPrefix(call.FullMethod, "/grpc.health.v1.Health/")
		}))
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	defer server.Stop()

	var header metadata.MD
	_, err := dial(server).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header))
	fmt.Println(status.Code(err), header["ratelimit"])
	// Output: OK []
}

// A call passes only if both limits have room, and is charged to both of them or to none.
func ExampleNewAll() {
	store := memory.New() // in your program: postgres.Open
	burst, err := limiter.New(store, "burst", limiter.PerHour(10))
	if err != nil {
		panic(err)
	}
	names, err := limiter.New(store, "names", limiter.PerHour(12))
	if err != nil {
		panic(err)
	}
	limit := grpclimiter.NewAll([]grpclimiter.Rule{
		{Limiter: burst, Key: grpclimiter.Metadata("x-api-key")},
		{Limiter: names, Key: grpclimiter.Metadata("x-api-key"), Cost: func(_ context.Context, call grpclimiter.Call) int64 {
			request, _ := call.Request.(*grpc_health_v1.HealthCheckRequest) // a message of your service
			return int64(max(1, len(request.GetService())))
		}},
	})
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	defer server.Stop()
	client := dial(server)

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "k1")
	for _, name := range []string{"", "12 letters.."} {
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
		fmt.Printf("%v %q\n", status.Code(err), status.Convert(err).Message())
	}
	// Output:
	// OK ""
	// ResourceExhausted "rate limit exceeded: names"
}
