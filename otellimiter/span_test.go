package otellimiter_test

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/otellimiter"
)

func TestSpanEvents(t *testing.T) {
	t.Parallel()
	const failed = "sqlimit.decision error.type=not_applied sqlimit.limiter=l sqlimit.result=error sqlimit.source=policy\n"
	events := []otellimiter.Option{otellimiter.WithSpanEvents()}
	for _, c := range []struct {
		name  string
		store limiter.Store
		opts  []otellimiter.Option
		want  string
	}{
		{"without the option", memory.New(), nil, ""},
		{
			"a decision", memory.New(), events,
			"sqlimit.decision sqlimit.limiter=l sqlimit.result=allowed sqlimit.source=store\n" +
				"sqlimit.decision sqlimit.limiter=l sqlimit.result=refused sqlimit.source=store\n",
		},
		{"an error", fails{limiter.ErrNotApplied}, events, failed + failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			recorder := tracetest.NewSpanRecorder()
			tracer := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("test")
			l := newLimiter(t, c.store, "l", limiter.PerDay(1), limiter.WithObserver(otellimiter.Observer(newMeter(t), c.opts...)))
			_, _ = l.Allow(t.Context(), "without a span")
			ctx, span := tracer.Start(t.Context(), "request")
			for range 2 {
				_, _ = l.Allow(ctx, "key")
			}
			span.End()
			_, _ = l.Allow(ctx, "after the end")
			ended := recorder.Ended()
			if len(ended) != 1 {
				t.Fatalf("%d spans, want the caller's only", len(ended))
			}
			var got string
			for _, event := range ended[0].Events() {
				got += event.Name
				for _, a := range event.Attributes {
					got += fmt.Sprintf(" %s=%s", a.Key, a.Value.AsString())
				}
				got += "\n"
			}
			if got != c.want {
				t.Errorf("the events are\n%swant\n%s", got, c.want)
			}
		})
	}
}
