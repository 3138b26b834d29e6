package otellimiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
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
		if one.Description == "" {
			t.Errorf("%s has no description", name)
		}
	}
	testenv.Must(t, registration.Unregister())
	m.wantPoints(t)
}

func TestNilArguments(t *testing.T) {
	t.Parallel()
	for _, store := range []otellimiter.Store{nil, (*stats)(nil)} {
		if _, err := otellimiter.Watch(newMeter(t), store); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Watch of %T: %v, want ErrInvalid", store, err)
		}
	}
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "an option of Observer is nil") {
			t.Errorf("panic %q", text)
		}
	}()
	otellimiter.Observer(newMeter(t), nil)
}
