package handler_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func export(http.ResponseWriter, *http.Request) {}

// customer returns the customer of a request.
func customer(r *http.Request) string {
	return r.Header.Get("X-Customer") // in your program: whom authentication found
}

// A customer may have two exports in flight, and start 100 an hour.
func ExampleNewConcurrency() {
	exports, err := limiter.NewConcurrency(memory.New(), "exports", limiter.InFlight{Limit: 2, Hold: 2 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	inFlight := handler.NewConcurrency(exports, handler.User(customer))
	perHour := handler.New(mustLimiter("exports-hour", limiter.PerHour(100)), handler.User(customer))
	mux := http.NewServeMux()
	mux.Handle("POST /exports", inFlight(perHour(http.HandlerFunc(export))))

	ask := func() {
		r, w := httptest.NewRequest(http.MethodPost, "/exports", http.NoBody), httptest.NewRecorder()
		r.Header.Set("X-Customer", "customer-7")
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header()["Retry-After"])
	}
	ctx := context.Background()
	first, _ := exports.TryAcquire(ctx, "customer-7") // by requests to other processes
	_, _ = exports.TryAcquire(ctx, "customer-7")
	ask()
	_ = first.Release(ctx)
	ask()
	// Output:
	// 429 [1]
	// 200 []
}
