package awslambda_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
)

// BenchmarkInvoke is what an event costs that a plain handler serves, from JSON to
// JSON, the limiter included.
func BenchmarkInvoke(b *testing.B) {
	page := strings.Repeat("<p>hello</p>", 100)
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
	h := awslambda.Handler(handler.New(newLimiter(b, 1<<30), handler.ClientIP())(next), nil)
	for _, event := range []string{"rest", "httpapi", "functionurl", "alb", "alb-multivalue"} {
		payload := recorded(b, event)
		b.Run(event, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Invoke(b.Context(), payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLimitHTTPAPI is what a limiter adds to a function that takes the event.
func BenchmarkLimitHTTPAPI(b *testing.B) {
	limit := awslambda.LimitHTTPAPI(newLimiter(b, 1<<30), handler.ClientIP())
	f := limit(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusOK}, nil
	})
	var event events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(recorded(b, "httpapi"), &event); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f(b.Context(), event); err != nil {
			b.Fatal(err)
		}
	}
}
