package otellimiter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/otellimiter"
)

type stats struct{ now limiter.StoreStats }

func (s *stats) Stats() limiter.StoreStats { return s.now }

func TestWatch(t *testing.T) {
	t.Parallel()
	m, store := newMeter(t), new(stats)
	registration, err := otellimiter.Watch(m, store, attribute.String("store", "eu"))
	testenv.Must(t, err)
	want := func(statements, rows, units, retries, open int) {
		t.Helper()
		var lines []string
		for name, n := range map[string]int{"statements": statements, "rows": rows, "units": units, "retries": retries, "breaker.state": open} {
			lines = append(lines, fmt.Sprintf("store.%s store=eu: %d", name, n))
		}
		m.wantPoints(t, lines...)
	}
	want(0, 0, 0, 0, 0)
	store.now = limiter.StoreStats{Statements: 2, Rows: 3, Units: 64, Retries: 1, SecondLooks: 9, Queued: 9, BreakerOpen: true, BreakerOpenings: 9, ConnectionsLost: 9}
	want(2, 3, 64, 1, 1)
	store.now = limiter.StoreStats{Statements: 5, Rows: 6, Units: 70, Retries: 1}
	want(5, 6, 70, 1, 0)
	for name, one := range m.collect(t) {
		sum, isSum := one.Data.(metricdata.Sum[int64])
		if name == "sqlimit.store.breaker.state" {
			if isSum || one.Unit != "" {
				t.Errorf("%s: %T of unit %q, want a gauge without a unit", name, one.Data, one.Unit)
			}
		} else if !sum.IsMonotonic || one.Unit == "" {
			t.Errorf("%s: %+v of unit %q, want a counter", name, one.Data, one.Unit)
		}
		testenv.Equal(t, one.Description != "", true, name, "has a description")
	}
	testenv.Must(t, registration.Unregister())
	m.wantPoints(t)
}

func TestNilArguments(t *testing.T) {
	t.Parallel()
	for _, store := range []otellimiter.Store{nil, (*stats)(nil)} {
		testenv.ErrorIs(t, testenv.ErrorOf(otellimiter.Watch(newMeter(t), store)), limiter.ErrInvalid, fmt.Sprintf("Watch of %T", store))
	}
	testenv.Panics(t, "an option of Observer is nil", func() { otellimiter.Observer(newMeter(t), nil) })
}

// meter is a provider whose metrics a test reads.
type meter struct {
	*sdk.MeterProvider
	reader *sdk.ManualReader
}

func newMeter(t testing.TB) meter {
	t.Helper()
	reader := sdk.NewManualReader()
	m := meter{sdk.NewMeterProvider(sdk.WithReader(reader)), reader}
	t.Cleanup(func() { testenv.Must(t, m.Shutdown(context.Background())) })
	return m
}

func (m meter) collect(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	testenv.Must(t, m.reader.Collect(context.Background(), &all))
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, one := range scope.Metrics {
			found[one.Name] = one
		}
	}
	return found
}

// points returns the data points as lines of name, attributes and value, which is the count of a histogram.
func (m meter) points(t testing.TB) []string {
	t.Helper()
	var lines []string
	add := func(name string, set attribute.Set, value any) {
		var attrs []string
		for _, a := range set.ToSlice() {
			attrs = append(attrs, strings.TrimPrefix(string(a.Key), "sqlimit.")+"="+a.Value.AsString())
		}
		slices.Sort(attrs)
		lines = append(lines, strings.TrimSpace(fmt.Sprint(strings.TrimPrefix(name, "sqlimit."), " ", strings.Join(attrs, " ")))+fmt.Sprint(": ", value))
	}
	for name, one := range m.collect(t) {
		var numbers []metricdata.DataPoint[int64]
		switch data := one.Data.(type) {
		case metricdata.Sum[int64]:
			numbers = data.DataPoints
		case metricdata.Gauge[int64]:
			numbers = data.DataPoints
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Count)
			}
		default:
			t.Errorf("%s: data of type %T", name, data)
		}
		for _, p := range numbers {
			add(name, p.Attributes, p.Value)
		}
	}
	slices.Sort(lines)
	return lines
}

// wantPoints compares the data points of all metrics with lines in any order.
func (m meter) wantPoints(t testing.TB, want ...string) {
	t.Helper()
	slices.Sort(want)
	testenv.Equal(t, strings.Join(m.points(t), "\n"), strings.Join(want, "\n"), "the metrics")
}

// wantDecisions is wantPoints, but a line without a metric stands for the counts of decisions and durations.
func (m meter) wantDecisions(t testing.TB, lines ...string) {
	t.Helper()
	var want []string
	for _, line := range lines {
		if strings.HasPrefix(line, "units ") {
			want = append(want, line)
			continue
		}
		want = append(want, "decisions "+line, "decision.duration "+line)
	}
	m.wantPoints(t, want...)
}

// fails is a store that fails, also for several limits.
type fails struct{ err error }

func (f fails) Do(context.Context, limiter.Op) (limiter.State, error) { return limiter.State{}, f.err }

func (f fails) DoAll(context.Context, []limiter.Op) ([]limiter.State, error) { return nil, f.err }

func newLimiter(t testing.TB, store limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(store, name, p, opts...)
	testenv.Must(t, err)
	return l
}
