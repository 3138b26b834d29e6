package otellimiter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/otellimiter"
)

func TestEachDecisionIsRecordedWithWhatItTook(t *testing.T) {
	t.Parallel()
	allow := func(n int64) func(context.Context, *limiter.Limiter) {
		return func(ctx context.Context, l *limiter.Limiter) { _, _ = l.AllowN(ctx, "key", n) }
	}
	for _, c := range []struct {
		name  string
		store limiter.Store
		opts  []limiter.Option
		times int
		do    func(ctx context.Context, l *limiter.Limiter)
		want  []string
	}{
		{"requests that pass, or that the store or a deny cache refuses", memory.New(), []limiter.Option{limiter.WithDenyCache(10, time.Minute)}, 3, allow(4), []string{
			"limiter=l result=allowed source=store: 1",
			"units limiter=l operation=take result=allowed source=store: 4",
			"limiter=l result=refused source=store: 1",
			"limiter=l result=refused source=deny_cache: 1",
		}},
		{"a Peek and a PeekN, which take nothing", memory.New(), nil, 1, func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Peek(ctx, "key")
			_, _ = l.PeekN(ctx, "key", 2)
		}, []string{"limiter=l result=allowed source=store: 2"}},
		{"an AllowUpTo that takes a part", memory.New(), nil, 1, func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.AllowUpTo(ctx, "key", 9)
		}, []string{"limiter=l result=allowed source=store: 1", "units limiter=l operation=take_up_to result=allowed source=store: 4"}},
		{"a Reserve", memory.New(), nil, 2, func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Reserve(ctx, "key", 4, time.Hour)
		}, []string{
			"limiter=l result=allowed source=store: 1",
			"units limiter=l operation=take result=allowed source=store: 4",
			"limiter=l result=refused source=store: 1",
		}},
		{"what is no decision", memory.New(), nil, 1, func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Charge(ctx, "key", 1)
			_, _ = l.Refund(ctx, "key", 1)
			_ = l.Block(ctx, "key", time.Minute)
			_ = l.Reset(ctx, "key")
			_, _ = l.Charge(ctx, "key", 9)
		}, []string{
			"units limiter=l operation=charge result=allowed source=store: 1",
			"units limiter=l operation=charge result=refused source=store: 9",
		}},
		{"FailOpen", fails{limiter.ErrOutcomeUnknown}, []limiter.Option{limiter.FailOpen()}, 1, allow(2), []string{
			"error.type=outcome_unknown limiter=l result=allowed source=policy: 1",
			"units error.type=outcome_unknown limiter=l operation=take result=allowed source=policy: 2",
		}},
		{"FailLocal", fails{limiter.ErrNotApplied}, []limiter.Option{limiter.FailLocal(memory.New())}, 2, allow(4), []string{
			"error.type=not_applied limiter=l result=allowed source=local: 1",
			"units error.type=not_applied limiter=l operation=take result=allowed source=local: 4",
			"error.type=not_applied limiter=l result=refused source=local: 1",
		}},
		{"a fallback that also fails", fails{limiter.ErrNotApplied}, []limiter.Option{limiter.FailLocal(fails{limiter.ErrMisconfigured})}, 1, allow(1), []string{
			"error.type=misconfigured limiter=l result=error source=policy: 1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMeter(t)
			opts := append([]limiter.Option{limiter.WithObserver(otellimiter.Observer(m))}, c.opts...)
			l := newLimiter(t, c.store, "l", limiter.PerDay(4), opts...)
			for range c.times {
				c.do(t.Context(), l)
			}
			m.wantDecisions(t, c.want...)
		})
	}
}

func TestRequestsInFlight(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	c, err := limiter.NewConcurrency(memory.New(), "l", limiter.InFlight{Limit: 1, Hold: time.Minute},
		limiter.WithObserver(otellimiter.Observer(m)))
	testenv.Must(t, err)
	lease, err := c.TryAcquire(t.Context(), "key")
	testenv.Must(t, err)
	testenv.Must(t, testenv.ErrorOf(lease.Extend(t.Context(), time.Minute)))
	testenv.Must(t, testenv.ErrorOf(c.TryAcquire(t.Context(), "key"))) // which is refused
	testenv.Must(t, lease.Release(t.Context()))
	m.wantDecisions(t,
		"limiter=l result=allowed source=store: 1",
		"limiter=l result=refused source=store: 1",
		"units limiter=l operation=acquire result=allowed source=store: 1")
}

// A refusal of one limiter is no error of the other. Both record it with its source.
func TestAllowAll(t *testing.T) {
	t.Parallel()
	stores := func(results ...string) (want []string) {
		for name, units := range map[string]int{"scarce": 3, "other": 1} {
			for _, result := range results {
				want = append(want, fmt.Sprintf("limiter=%s result=%s", name, result))
			}
			want = append(want, fmt.Sprintf("units limiter=%s operation=take result=allowed source=store: %d", name, units))
		}
		return want
	}
	for _, c := range []struct {
		name  string
		store limiter.Store
		opt   limiter.Option // of the limiter that refuses
		want  []string
	}{
		{"the store refuses", memory.New(), limiter.FailClosed(), stores("allowed source=store: 1", "refused source=store: 2")},
		{"the deny cache refuses", memory.New(), limiter.WithDenyCache(10, time.Minute), stores("allowed source=store: 1", "refused source=store: 1", "refused source=deny_cache: 1")},
		{"the fallback refuses", fails{limiter.ErrNotApplied}, limiter.FailLocal(memory.New()), []string{
			"error.type=not_applied limiter=scarce result=allowed source=local: 1",
			"units error.type=not_applied limiter=scarce operation=take result=allowed source=local: 3",
			"error.type=not_applied limiter=scarce result=refused source=local: 2",
			"error.type=not_applied limiter=other result=allowed source=policy: 1",
			"units error.type=not_applied limiter=other operation=take result=allowed source=policy: 1",
			"error.type=not_applied limiter=other result=refused source=local: 2",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMeter(t)
			observe := limiter.WithObserver(otellimiter.Observer(m))
			scarce := newLimiter(t, c.store, "scarce", limiter.PerDay(3), c.opt, observe)
			other := newLimiter(t, c.store, "other", limiter.PerDay(9), limiter.FailOpen(), observe)
			for range 3 {
				testenv.Must(t, testenv.ErrorOf(limiter.AllowAll(t.Context(), limiter.Claim{Limiter: other, Key: "key"}, limiter.Claim{Limiter: scarce, Key: "key", Cost: 3})))
			}
			m.wantDecisions(t, c.want...)
		})
	}
}

func TestTheTypeOfAnErrorIsItsClass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{limiter.ErrNotApplied, "not_applied"},
		{limiter.ErrOutcomeUnknown, "outcome_unknown"},
		{limiter.ErrMisconfigured, "misconfigured"},
		{limiter.ErrCanceled, "canceled"},
		{limiter.ErrInvalid, "invalid"},
		{errors.ErrUnsupported, "unsupported"},
		{errors.New("of no class"), "_OTHER"},
		{fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrKeyBusy), "key_busy"},
		{fmt.Errorf("%w: %w", limiter.ErrOutcomeUnknown, limiter.ErrCanceled), "canceled"},
		{fmt.Errorf("%w; and the fallback: %w", limiter.ErrNotApplied, limiter.ErrOutcomeUnknown), "outcome_unknown"},
	} {
		m := newMeter(t)
		l := newLimiter(t, fails{c.err}, "l", limiter.PerDay(1), limiter.WithObserver(otellimiter.Observer(m)))
		testenv.ErrorIs(t, testenv.ErrorOf(l.Allow(t.Context(), "key")), c.err)
		m.wantDecisions(t, "error.type="+c.want+" limiter=l result=error source=policy: 1")
	}
}

func TestMetricsHaveUnitsAndSumsGrow(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	observe := otellimiter.Observer(m)
	d := limiter.Decision{Limiter: "l", Op: limiter.OpTake, Cost: 2, Result: limiter.Result{Allowed: true, Taken: 2, Source: limiter.SourceStore}, Duration: 1500 * time.Microsecond}
	for range 3 {
		observe(t.Context(), d)
	}
	found := m.collect(t)
	for name, unit := range map[string]string{"sqlimit.decisions": "{decision}", "sqlimit.units": "{unit}", "sqlimit.decision.duration": "s"} {
		one := found[name]
		if one.Unit != unit || one.Description == "" {
			t.Errorf("%s: unit %q, description %q; want the unit %q", name, one.Unit, one.Description, unit)
		}
		data, isSum := one.Data.(metricdata.Sum[int64])
		if isSum == (unit == "s") || isSum && (!data.IsMonotonic || data.Temporality != metricdata.CumulativeTemporality) {
			t.Errorf("%s is %+v", name, data)
		}
	}
	p := found["sqlimit.decision.duration"].Data.(metricdata.Histogram[float64]).DataPoints[0]
	if p.Count != 3 || p.Sum < 0.0044 || p.Sum > 0.0046 {
		t.Errorf("3 decisions of 1.5 ms are %d of %v s", p.Count, p.Sum)
	}
	for _, want := range []float64{0.0001, 0.001, 0.25, 5} { // a deny cache, a database, the time limit, a connection
		testenv.Equal(t, slices.Contains(p.Bounds, want), true, "the boundaries", p.Bounds, "have", want)
	}
}

func TestASourceOfALaterVersionIsRecorded(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	otellimiter.Observer(m)(t.Context(), limiter.Decision{Limiter: "l", Result: limiter.Result{Source: 77}})
	m.wantDecisions(t, "limiter=l result=refused source=source(77): 1")
}

type broken struct{ noop.MeterProvider }

func (broken) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

type brokenMeter struct{ noop.Meter }

var errBroken = errors.New("no instruments today")

func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errBroken
}

func (brokenMeter) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return nil, errBroken
}

// It sets globals, so it is not parallel.
func TestAProviderThatFailsFailsNoDecision(t *testing.T) {
	before := otel.GetErrorHandler()
	defer otel.SetErrorHandler(before)
	var handled []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))
	l := newLimiter(t, memory.New(), "l", limiter.PerDay(1), limiter.WithObserver(otellimiter.Observer(broken{})))
	if res, err := l.Allow(t.Context(), "key"); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	testenv.Equal(t, len(handled), 1, "calls of the error handler")
	testenv.ErrorIs(t, errors.Join(handled...), errBroken, "the error handler")
	testenv.ErrorIs(t, testenv.ErrorOf(otellimiter.Watch(broken{}, new(stats))), errBroken, "Watch")
}

// It sets globals, so it is not parallel.
func TestWithoutAProviderTheGlobalOneIsUsed(t *testing.T) {
	before := otel.GetMeterProvider()
	defer otel.SetMeterProvider(before)
	m := newMeter(t)
	otel.SetMeterProvider(m)
	otellimiter.Observer(nil)(t.Context(), limiter.Decision{Limiter: "l", Result: limiter.Result{Source: limiter.SourceStore}})
	testenv.Must(t, testenv.ErrorOf(otellimiter.Watch(nil, new(stats))))
	testenv.Equal(t, len(m.collect(t)), 7, "metrics")
}

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
			testenv.Equal(t, testing.AllocsPerRun(1000, func() { observe(ctx, d) }), 0, name, kind, "allocations")
		}
	}
}

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
			testenv.Equal(t, got, c.want, "the events")
		})
	}
}

// Another store may put the key into its errors. Even then it is neither in the metrics nor in the span.
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
	testenv.Equal(t, len(events) >= 9*3*3, true, "there are enough events:", len(events))
	text := fmt.Sprintf("%s %+v %+v %v", inJSON, metrics, events, m.points(t))
	testenv.Equal(t, keyleak.Of(key).In([]byte(text)), nil, "traces of the key")
	testenv.Contains(t, text, "not_applied", "l00") // it was searched
}
