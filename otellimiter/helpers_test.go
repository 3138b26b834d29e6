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
)

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
	if got := m.points(t); !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
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
