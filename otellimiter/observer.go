package otellimiter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqlimit/limiter"
)

// scope is the name of the meter.
const scope = "github.com/sqlimit/limiter/otellimiter"

// Option changes what [Observer] does.
type Option func(*observer)

// WithSpanEvents also adds an event named sqlimit.decision to the span in the caller's context, with
// the attributes of the metrics. It adds nothing to a span that is not recording, and makes no spans.
func WithSpanEvents() Option { return func(o *observer) { o.spanEvents = true } }

// Observer returns an observer that records each decision and charge in the metrics of provider. A nil
// provider means [otel.GetMeterProvider]. One observer can serve any number of limiters, and is safe for
// concurrent use. The observer allocates nothing for a decision, but the provider may.
//
// Observer panics if an option is nil. If the provider cannot make an instrument, [otel.Handle]
// gets the error, and the observer records nothing.
func Observer(provider metric.MeterProvider, opts ...Option) limiter.Observer {
	o := new(observer)
	for _, opt := range opts {
		if opt == nil {
			panic("otellimiter: an option of Observer is nil; leave it out")
		}
		opt(o)
	}
	var err error
	if o.instruments, err = newInstruments(meterOf(provider)); err != nil {
		otel.Handle(err)
		o.instruments, _ = newInstruments(noop.Meter{})
	}
	o.limiters.Store(&map[string]*outcomes{})
	return o.observe
}

func meterOf(provider metric.MeterProvider) metric.Meter {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	return provider.Meter(scope)
}

// instruments record decisions.
type instruments struct {
	decisions, units metric.Int64Counter
	duration         metric.Float64Histogram
}

// boundaries are the histogram's buckets in seconds. A decision takes microseconds from a deny cache, and
// about a millisecond in a database nearby. It takes up to 250 ms by the default time limit, and up to 3 s
// more if a connection has to be made.
var boundaries = []float64{
	0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
}

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs [3]error
	i.decisions, errs[0] = m.Int64Counter("sqlimit.decisions", metric.WithUnit("{decision}"),
		metric.WithDescription("Decisions about requests."))
	i.units, errs[1] = m.Int64Counter("sqlimit.units", metric.WithUnit("{unit}"),
		metric.WithDescription("What decisions and charges took."))
	i.duration, errs[2] = m.Float64Histogram("sqlimit.decision.duration", metric.WithUnit("s"),
		metric.WithDescription("How long the decisions took."), metric.WithExplicitBucketBoundaries(boundaries...))
	return i, errors.Join(errs[:]...)
}

// observer records decisions.
type observer struct {
	instruments
	spanEvents bool

	limiters atomic.Pointer[map[string]*outcomes] // by name; copied and replaced to add a limiter
	mu       sync.Mutex                           // held while adding a limiter
}

// observe is the [limiter.Observer].
func (o *observer) observe(ctx context.Context, d limiter.Decision) {
	switch d.Op {
	case limiter.OpRefund, limiter.OpCancel, limiter.OpReset, limiter.OpBlock, limiter.OpRelease, limiter.OpExtend:
		return
	}
	s := o.outcomes(d.Limiter).series(&d)
	if d.Result.Taken > 0 {
		o.units.Add(ctx, d.Result.Taken, s.ofUnits(d.Op)...)
	}
	if d.Op == limiter.OpCharge {
		return
	}
	o.decisions.Add(ctx, 1, s.add...)
	o.duration.Record(ctx, d.Duration.Seconds(), s.record...)
	if !o.spanEvents {
		return
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("sqlimit.decision", s.event...)
	}
}

// outcomes returns the outcomes of a limiter, which it adds at the limiter's first decision.
func (o *observer) outcomes(name string) *outcomes {
	if found := (*o.limiters.Load())[name]; found != nil {
		return found
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := *o.limiters.Load()
	if found := known[name]; found != nil {
		return found
	}
	added := &outcomes{name: name}
	next := map[string]*outcomes{name: added}
	for name, found := range known {
		next[name] = found
	}
	o.limiters.Store(&next)
	return added
}
