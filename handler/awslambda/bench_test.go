package awslambda_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

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
