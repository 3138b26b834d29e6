package otellimiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/otellimiter"
)

func TestEachDecisionIsRecordedWithWhatItTook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		store limiter.Store
		opts  []limiter.Option
		do    func(l *limiter.Limiter)
		want  []string
	}{
		{"requests that pass, or that the store or a deny cache refuses", memory.New(), []limiter.Option{limiter.WithDenyCache(10, time.Minute)}, func(l *limiter.Limiter) {
			for range 3 {
				_, _ = l.AllowN(context.Background(), "key", 4)
			}
		}, []string{
			"limiter=l result=allowed source=store: 1",
			"units limiter=l operation=take result=allowed source=store: 4",
			"limiter=l result=refused source=store: 1",
			"limiter=l result=refused source=deny_cache: 1",
		}},
		{"a Peek and a PeekN, which take nothing", memory.New(), nil, func(l *limiter.Limiter) {
			_, _ = l.Peek(context.Background(), "key")
			_, _ = l.PeekN(context.Background(), "key", 2)
		}, []string{"limiter=l result=allowed source=store: 2"}},
		{"an AllowUpTo that takes a part", memory.New(), nil, func(l *limiter.Limiter) {
			_, _ = l.AllowUpTo(context.Background(), "key", 9)
		}, []string{
			"limiter=l result=allowed source=store: 1",
			"units limiter=l operation=take_up_to result=allowed source=store: 4",
		}},
		{"a Reserve", memory.New(), nil, func(l *limiter.Limiter) {
			for range 2 {
				_, _ = l.Reserve(context.Background(), "key", 4, time.Hour)
			}
		}, []string{
			"limiter=l result=allowed source=store: 1",
			"units limiter=l operation=take result=allowed source=store: 4",
			"limiter=l result=refused source=store: 1",
		}},
		{"what is no decision", memory.New(), nil, func(l *limiter.Limiter) {
			_, _ = l.Charge(context.Background(), "key", 1)
			_, _ = l.Refund(context.Background(), "key", 1)
			_ = l.Block(context.Background(), "key", time.Minute)
			_ = l.Reset(context.Background(), "key")
			_, _ = l.Charge(context.Background(), "key", 9)
		}, []string{
			"units limiter=l operation=charge result=allowed source=store: 1",
			"units limiter=l operation=charge result=refused source=store: 9",
		}},
		{"FailOpen", fails{limiter.ErrOutcomeUnknown}, []limiter.Option{limiter.FailOpen()}, func(l *limiter.Limiter) {
			_, _ = l.AllowN(context.Background(), "key", 2)
		}, []string{
			"error.type=outcome_unknown limiter=l result=allowed source=policy: 1",
			"units error.type=outcome_unknown limiter=l operation=take result=allowed source=policy: 2",
		}},
		{"FailLocal", fails{limiter.ErrNotApplied}, []limiter.Option{limiter.FailLocal(memory.New())}, func(l *limiter.Limiter) {
			for range 2 {
				_, _ = l.AllowN(context.Background(), "key", 4)
			}
		}, []string{
			"error.type=not_applied limiter=l result=allowed source=local: 1",
			"units error.type=not_applied limiter=l operation=take result=allowed source=local: 4",
			"error.type=not_applied limiter=l result=refused source=local: 1",
		}},
		{"a fallback that also fails", fails{limiter.ErrNotApplied}, []limiter.Option{limiter.FailLocal(fails{limiter.ErrMisconfigured})}, func(l *limiter.Limiter) {
			_, _ = l.Allow(context.Background(), "key")
		}, []string{
			"error.type=misconfigured limiter=l result=error source=policy: 1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMeter(t)
			opts := append([]limiter.Option{limiter.WithObserver(otellimiter.Observer(m))}, c.opts...)
			c.do(newLimiter(t, c.store, "l", limiter.PerDay(4), opts...))
			m.wantDecisions(t, c.want...)
		})
	}
}

func TestAllowAllIsRecordedForEachLimiter(t *testing.T) {
	t.Parallel()
	m, store := newMeter(t), memory.New()
	observe := limiter.WithObserver(otellimiter.Observer(m))
	minute, day := newLimiter(t, store, "minute", limiter.PerDay(9), observe), newLimiter(t, store, "day", limiter.PerDay(3), observe)
	for range 2 {
		testenv.Must(t, testenv.ErrorOf(limiter.AllowAll(t.Context(), limiter.Claim{Limiter: minute, Key: "key", Cost: 2}, limiter.Claim{Limiter: day, Key: "key", Cost: 3})))
	}
	var want []string
	for name, units := range map[string]int{"minute": 2, "day": 3} {
		for _, result := range []string{"allowed", "refused"} {
			want = append(want, fmt.Sprintf("limiter=%s result=%s source=store: 1", name, result))
		}
		want = append(want, fmt.Sprintf("units limiter=%s operation=take result=allowed source=store: %d", name, units))
	}
	m.wantDecisions(t, want...)
}

func TestAllowAllRefusalIsNoError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		store  limiter.Store
		opt    limiter.Option // of the limiter that refuses
		passes string         // attributes of the other limiter's decisions
		others []string
	}{
		{
			"the fallback refuses",
			fails{limiter.ErrNotApplied},
			limiter.FailLocal(memory.New()),
			"error.type=not_applied limiter=other result=allowed source=policy: 1",
			[]string{"error.type=not_applied limiter=other result=refused source=local: 2"},
		},
		{
			"the deny cache refuses", memory.New(), limiter.WithDenyCache(10, time.Minute),
			"limiter=other result=allowed source=store: 1",
			[]string{"limiter=other result=refused source=store: 1", "limiter=other result=refused source=deny_cache: 1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMeter(t)
			refuses := newLimiter(t, c.store, "refuses", limiter.PerDay(1), c.opt)
			other := newLimiter(t, c.store, "other", limiter.PerDay(9), limiter.FailOpen(), limiter.WithObserver(otellimiter.Observer(m)))
			for range 3 {
				testenv.Must(t, testenv.ErrorOf(limiter.AllowAll(t.Context(), limiter.Claim{Limiter: other, Key: "key"}, limiter.Claim{Limiter: refuses, Key: "key"})))
			}
			m.wantDecisions(t, append(c.others, c.passes, "units "+strings.Replace(c.passes, " result", " operation=take result", 1))...)
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
		if _, err := l.Allow(t.Context(), "key"); !errors.Is(err, c.err) {
			t.Fatal(err)
		}
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
		if one := found[name]; one.Unit != unit || one.Description == "" {
			t.Errorf("%s: unit %q, description %q; want the unit %q", name, one.Unit, one.Description, unit)
		}
	}
	for _, name := range []string{"sqlimit.decisions", "sqlimit.units"} {
		if data := found[name].Data.(metricdata.Sum[int64]); !data.IsMonotonic || data.Temporality != metricdata.CumulativeTemporality {
			t.Errorf("%s is %+v", name, data)
		}
	}
	p := found["sqlimit.decision.duration"].Data.(metricdata.Histogram[float64]).DataPoints[0]
	if p.Count != 3 || p.Sum < 0.0044 || p.Sum > 0.0046 {
		t.Errorf("3 decisions of 1.5 ms are %d of %v s", p.Count, p.Sum)
	}
	for _, want := range []float64{0.0001, 0.001, 0.25, 5} { // a deny cache, a database, the time limit, a connection
		if !slices.Contains(p.Bounds, want) {
			t.Errorf("the boundaries %v lack %v", p.Bounds, want)
		}
	}
}

func TestASourceOfALaterVersionIsRecorded(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	otellimiter.Observer(m)(t.Context(), limiter.Decision{Limiter: "l", Result: limiter.Result{Source: 77}})
	m.wantDecisions(t, "limiter=l result=refused source=source(77): 1")
}

// broken makes no instruments.
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
	if len(handled) != 1 || !errors.Is(handled[0], errBroken) {
		t.Errorf("the error handler got %v", handled)
	}
	if _, err := otellimiter.Watch(broken{}, new(stats)); !errors.Is(err, errBroken) {
		t.Errorf("Watch: %v", err)
	}
}

// It sets globals, so it is not parallel.
func TestWithoutAProviderTheGlobalOneIsUsed(t *testing.T) {
	before := otel.GetMeterProvider()
	defer otel.SetMeterProvider(before)
	m := newMeter(t)
	otel.SetMeterProvider(m)
	otellimiter.Observer(nil)(t.Context(), limiter.Decision{Limiter: "l", Result: limiter.Result{Source: limiter.SourceStore}})
	testenv.Must(t, testenv.ErrorOf(otellimiter.Watch(nil, new(stats))))
	if n := len(m.collect(t)); n != 7 {
		t.Errorf("%d metrics, want 7", n)
	}
}

func TestObserverPanicsForANilOption(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "an option of Observer is nil") {
			t.Errorf("panic %q", text)
		}
	}()
	otellimiter.Observer(newMeter(t), nil)
}
