package otellimiter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/otellimiter"
)

// A store of somebody else may put the key into its errors. Not even then it is in the metrics or in
// the span.
func TestTheKeyIsNowhere(t *testing.T) {
	t.Parallel()
	const key = "alice-9f31c2@example.com"
	m, recorder := newMeter(t), tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	leaky := fails{fmt.Errorf("%w: cannot update %q", limiter.ErrNotApplied, key)}
	for i, store := range []limiter.Store{memory.New(), leaky, fails{fmt.Errorf("no class: %s", key)}} {
		for j, opt := range []limiter.Option{limiter.FailClosed(), limiter.FailOpen(), limiter.FailLocal(leaky)} {
			l := newLimiter(t, store, fmt.Sprintf("l%d%d", i, j), limiter.PerDay(1), opt, limiter.WithDenyCache(10, time.Minute),
				limiter.WithObserver(otellimiter.Observer(m, otellimiter.WithSpanEvents())))
			for range 3 {
				_, _ = l.Allow(ctx, key)
				_, _ = l.Peek(ctx, key)
				_, _ = l.AllowUpTo(ctx, key, 2)
				_, _ = limiter.AllowAll(ctx, limiter.Claim{Limiter: l, Key: key})
			}
		}
	}
	span.End()
	metrics := m.collect(t)
	inJSON, err := json.Marshal(metrics)
	testenv.Must(t, err)
	events := recorder.Ended()[0].Events()
	if len(events) < 9*3*3 {
		t.Errorf("%d events", len(events))
	}
	text := fmt.Sprintf("%s %+v %+v %v", inJSON, metrics, events, m.points(t))
	if found := keyleak.Of(key).In([]byte(text)); len(found) > 0 {
		t.Errorf("the key appears as %v", found)
	}
	if !strings.Contains(text, "not_applied") || !strings.Contains(text, "l00") {
		t.Error("what was searched has not even the names of limiters and classes")
	}
}
