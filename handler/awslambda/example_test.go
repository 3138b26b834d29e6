package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
	"github.com/sqlimit/limiter/postgres"
)

// A Lambda function would keep the state in PostgreSQL; memory is for the examples.
func examplePerClient() *limiter.Limiter {
	l, err := limiter.New(newStore(), "per-client", limiter.PerMinute(1))
	if err != nil {
		panic(err)
	}
	return l
}

// exampleEvent reads an event that a gateway made.
func exampleEvent[E any](name string) (event E) {
	payload, err := os.ReadFile("testdata/" + name + ".json")
	if err := errors.Join(err, json.Unmarshal(payload, &event)); err != nil {
		panic(err)
	}
	return event
}

// One program for a server and for Lambda, where it also sweeps at scheduled events.
func ExampleHandler_serverAndLambda() {
	store, err := postgres.Open(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	perClient, err := limiter.New(store, "per-client", limiter.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	limited := handler.New(perClient, handler.ClientIP())(http.NotFoundHandler())
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" { // Lambda sets it
		log.Fatal(http.ListenAndServe(":8080", limited))
	}
	hourly := lambda.NewHandler(func(ctx context.Context, _ events.EventBridgeEvent) (int64, error) {
		return store.Sweep(ctx, 10_000) // the next sweep deletes the rest
	})
	lambda.Start(awslambda.Handler(limited, hourly)) // does not return
}

// HTTP events are limited, and the scheduled event goes to a function of its own.
func ExampleHandler() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ordered")
	})
	limited := handler.New(examplePerClient(), handler.ClientIP())(mux)

	hourly := lambda.NewHandler(func(context.Context, events.EventBridgeEvent) error {
		fmt.Println("sweeping")
		return nil
	})
	h := awslambda.Handler(limited, hourly)
	// In main: lambda.Start(h)

	for _, event := range []string{"httpapi", "alb", "other-scheduled"} {
		response, err := h.Invoke(context.Background(), exampleEvent[json.RawMessage](event))
		if err != nil {
			log.Fatal(err)
		}
		var r struct{ StatusCode int }
		if err := json.Unmarshal(response, &r); err == nil && r.StatusCode != 0 {
			fmt.Println(event, r.StatusCode)
		}
	}
	// Output:
	// httpapi 200
	// alb 429
	// sweeping
}

// A function needs no AWS to be tested.
func ExampleHandler_test() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	limited := handler.New(examplePerClient(), handler.ClientIP())(hello)
	event, err := os.ReadFile("testdata/httpapi.json")
	if err != nil {
		log.Fatal(err)
	}

	out, err := awslambda.Handler(limited, nil).Invoke(context.Background(), event)
	fmt.Print(string(out), err)
	// Output:
	// {"statusCode":200,"headers":{"Content-Type":"text/plain; charset=utf-8","Ratelimit":"\"per-client\";r=0;t=60","Ratelimit-Policy":"\"per-client\";q=1;w=60"},"multiValueHeaders":null,"body":"hello","cookies":null}
	// <nil>
}

// The health checks of a load balancer have no address, and are served outside of
// the limiter.
func ExampleALB() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.RemoteAddr) })
	mux := http.NewServeMux()
	mux.Handle("/", handler.New(examplePerClient(), handler.ClientIP())(hello))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "well") })
	f := awslambda.ALB(mux)
	// In main: lambda.Start(f)

	for _, name := range []string{"alb-health-check", "alb", "alb", "alb-health-check"} {
		response, err := f(context.Background(), exampleEvent[events.ALBTargetGroupRequest](name))
		fmt.Println(response.StatusDescription, err)
	}
	// Output:
	// 200 OK <nil>
	// 200 OK <nil>
	// 429 Too Many Requests <nil>
	// 200 OK <nil>
}

// Logins by account: the quota is not told to everybody, and only failures count.
func ExampleLimitHTTPAPI() {
	account := func(r *http.Request) (string, error) {
		event, _ := awslambda.EventFromContext[events.APIGatewayV2HTTPRequest](r.Context())
		return event.PathParameters["account"], nil
	}
	limit := awslambda.LimitHTTPAPI(examplePerClient(), account, handler.ChargeFailures(), handler.HideQuota())
	login := limit(func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if event.Body != "the password" {
			return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusUnauthorized}, nil
		}
		handler.Succeeded(ctx)
		return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusNoContent}, nil
	})
	// In main: lambda.Start(login)

	for _, password := range []string{"the password", "the password", "a guess", "another"} {
		response, err := login(context.Background(), events.APIGatewayV2HTTPRequest{
			PathParameters: map[string]string{"account": "alice"},
			Body:           password,
		})
		fmt.Println(response.StatusCode, response.Headers["Retry-After"], err)
	}
	// Output:
	// 204  <nil>
	// 204  <nil>
	// 401  <nil>
	// 429 60 <nil>
}

// A key from what the gateway's authorizer found out.
func ExampleEventFromContext() {
	user := handler.User(func(r *http.Request) string {
		event, _ := awslambda.EventFromContext[events.APIGatewayV2HTTPRequest](r.Context())
		if a := event.RequestContext.Authorizer; a != nil && a.JWT != nil {
			return a.JWT.Claims["sub"]
		}
		return ""
	})
	perUser := examplePerClient()
	h := awslambda.Handler(handler.New(perUser, user)(http.NotFoundHandler()), nil)
	// In main: lambda.Start(h)

	if _, err := h.Invoke(context.Background(), exampleEvent[json.RawMessage]("httpapi")); err != nil {
		log.Fatal(err)
	}
	alice, err := perUser.Peek(context.Background(), "alice")
	fmt.Println("left for alice:", alice.Remaining, err)
	// Output: left for alice: 0 <nil>
}
