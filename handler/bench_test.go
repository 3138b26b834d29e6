package handler_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

// bare is a ResponseWriter with a header of its own for each request, as the server makes it.
type bare struct{ header http.Header }

func (b *bare) Header() http.Header          { return b.header }
func (*bare) Write(body []byte) (int, error) { return len(body), nil }
func (*bare) WriteHeader(int)                {}

// TestRequestCostsSixAllocations pins what the benchmark measures: the key, the decision, the
// request's copy with it, two header lines, the text of one, and the header's first group of fields.
func TestRequestCostsSixAllocations(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	l, err := limiter.New(memory.New(), "search", limiter.TokenBucket{Capacity: 1 << 36, Refill: 1, Interval: time.Millisecond})
	must(t, err)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	allocs := func(h http.Handler) float64 {
		return testing.AllocsPerRun(1000, func() { h.ServeHTTP(&bare{make(http.Header)}, r) })
	}
	if got := allocs(handler.New(l, handler.ClientIP())(next)) - allocs(next); got > 6 {
		t.Errorf("%v allocations a request, want at most 6", got)
	}
}
