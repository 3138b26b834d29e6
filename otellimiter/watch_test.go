package otellimiter_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/otellimiter"
)

// stats is a store that returns these statistics.
type stats struct {
	mu  sync.Mutex
	now limiter.StoreStats
}

func (s *stats) set(now limiter.StoreStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// Stats implements [otellimiter.Store].
func (s *stats) Stats() limiter.StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func TestWatch(t *testing.T) {
	t.Parallel()
	m, store := newMeter(t), new(stats)
	registration, err := otellimiter.Watch(m, store)
	if err != nil {
		t.Fatal(err)
	}
	m.wantPoints(t, "store.statements: 0", "store.rows: 0", "store.units: 0", "store.retries: 0", "store.breaker.state: 0")
	store.set(limiter.StoreStats{Statements: 2, Rows: 3, Units: 64, Retries: 1, SecondLooks: 9, Queued: 9, BreakerOpen: true, BreakerOpenings: 9, ConnectionsLost: 9})
	m.wantPoints(t, "store.statements: 2", "store.rows: 3", "store.units: 64", "store.retries: 1", "store.breaker.state: 1")
	store.set(limiter.StoreStats{Statements: 5, Rows: 6, Units: 70, Retries: 1})
	m.wantPoints(t, "store.statements: 5", "store.rows: 6", "store.units: 70", "store.retries: 1", "store.breaker.state: 0")
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
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	m.wantPoints(t)
}

func TestStoresAreToldApartByAttributes(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	for i, name := range []string{"eu", "us"} {
		store := new(stats)
		store.set(limiter.StoreStats{Statements: int64(i + 1)})
		if _, err := otellimiter.Watch(m, store, attribute.String("store", name)); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i, name := range []string{"eu", "us"} {
		for _, metric := range []string{"rows", "units", "retries", "breaker.state"} {
			want = append(want, fmt.Sprintf("store.%s store=%s: 0", metric, name))
		}
		want = append(want, fmt.Sprintf("store.statements store=%s: %d", name, i+1))
	}
	m.wantPoints(t, want...)
}

func TestANilStoreCannotBeWatched(t *testing.T) {
	t.Parallel()
	for _, store := range []otellimiter.Store{nil, (*stats)(nil)} {
		if _, err := otellimiter.Watch(newMeter(t), store); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Watch of %T: %v, want ErrInvalid", store, err)
		}
	}
}
