package handler_test

import (
	"context"
	"fmt"
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

// BenchmarkServe is a request through the middleware with the memory store, beside the same handler
// alone: the difference is what the middleware costs, its decision included.
func BenchmarkServe(b *testing.B) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	limit := func(name string, p limiter.Policy, opts ...handler.Option) func(http.Handler) http.Handler {
		l, err := limiter.New(memory.New(), name, p)
		if err != nil {
			b.Fatal(err)
		}
		return handler.New(l, handler.ClientIP(), opts...)
	}
	all := func() func(http.Handler) http.Handler {
		store := memory.New()
		var rules []handler.Rule
		for name, p := range map[string]limiter.Policy{
			"search": limiter.TokenBucket{Capacity: 1 << 36, Refill: 1, Interval: time.Millisecond},
			"day":    limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour},
		} {
			l, err := limiter.New(store, name, p)
			if err != nil {
				b.Fatal(err)
			}
			rules = append(rules, handler.Rule{Limiter: l, Key: handler.ClientIP()})
		}
		return handler.NewAll(rules)
	}
	plenty := limiter.TokenBucket{Capacity: 1 << 36, Refill: 1, Interval: time.Millisecond}
	planned, err := limiter.New(memory.New(), "search", limiter.PerSecond(1), limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		return plenty, nil
	}))
	if err != nil {
		b.Fatal(err)
	}
	plan := handler.New(planned, handler.ClientIP())
	one := limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour}
	for _, bm := range []struct {
		name string
		h    http.Handler
	}{
		{"Empty", next},
		{"Allowed", limit("search", plenty)(next)},
		{"AllowedByTwo", limit("search", plenty)(limit("day", limiter.FixedWindow{Limit: 1 << 50, Window: 24 * time.Hour})(next))},
		{"AllowedByAll", all()(next)},
		{"AllowedByPlan", plan(next)},
		{"AllowedLegacy", limit("search", plenty, handler.LegacyHeaders())(next)},
		{"Refused", limit("search", one)(next)},
	} {
		for addresses, remote := range map[string]func(i int) string{
			"OneAddress":    func(int) string { return "192.0.2.1:1234" },
			"ManyAddresses": func(i int) string { return fmt.Sprintf("[2001:db8:%x::1]:1234", i%1024) },
		} {
			b.Run(bm.name+"/"+addresses, func(b *testing.B) {
				requests := make([]*http.Request, 1024)
				for i := range requests {
					requests[i] = httptest.NewRequest(http.MethodGet, "/", http.NoBody)
					requests[i].RemoteAddr = remote(i)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					bm.h.ServeHTTP(&bare{make(http.Header)}, requests[i%len(requests)])
					i++
				}
			})
		}
	}
}

// TestRequestCostsSixAllocations pins what the benchmark measures: the key, the decision, the
// request's copy with it, two header lines, the text of one, and the header's first group of fields.
func TestRequestCostsSixAllocations(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	l, err := limiter.New(memory.New(), "search", limiter.TokenBucket{Capacity: 1 << 36, Refill: 1, Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	allocs := func(h http.Handler) float64 {
		return testing.AllocsPerRun(1000, func() { h.ServeHTTP(&bare{make(http.Header)}, r) })
	}
	if got := allocs(handler.New(l, handler.ClientIP())(next)) - allocs(next); got > 6 {
		t.Errorf("%v allocations a request, want at most 6", got)
	}
}
