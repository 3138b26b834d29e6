package otellimiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/otellimiter"
)

var decisions = map[string]limiter.Decision{
	"allowed": {Limiter: "l", Cost: 1, Op: limiter.OpTake, Result: limiter.Result{Allowed: true, Taken: 1, Source: limiter.SourceStore}, Duration: 1e6},
	"refused": {Limiter: "l", Cost: 1, Result: limiter.Result{Source: limiter.SourceDenyCache}, Duration: 1e3},
	"error":   {Limiter: "l", Cost: 1, Result: limiter.Result{Source: limiter.SourcePolicy}, Err: fmt.Errorf("%w: no answer", limiter.ErrOutcomeUnknown), Duration: 25e7},
	"other":   {Limiter: "l", Cost: 1, Result: limiter.Result{Source: limiter.SourcePolicy}, Err: errors.New("of no class"), Duration: 1e6},
}

// It is not parallel, because AllocsPerRun counts the allocations of the whole process.
func TestADecisionAllocatesNothing(t *testing.T) {
	for name, provider := range map[string]metric.MeterProvider{"noop": noop.MeterProvider{}, "SDK": newMeter(t).MeterProvider} {
		observe := otellimiter.Observer(provider, otellimiter.WithSpanEvents())
		for kind, d := range decisions {
			ctx := context.Background()
			if n := testing.AllocsPerRun(1000, func() { observe(ctx, d) }); n != 0 {
				t.Errorf("%s, %s: %v allocations a decision", name, kind, n)
			}
		}
	}
}
