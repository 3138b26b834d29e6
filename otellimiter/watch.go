package otellimiter

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sqlimit/limiter"
)

// Store is what [Watch] reads: a store of package postgres or sqlite, or one of your own.
type Store interface {
	// Stats returns what the store has done. The provider calls it each time it reads the metrics,
	// possibly in several goroutines, so it should not block.
	Stats() limiter.StoreStats
}

// Watch reports the statistics of a store as metrics of provider, which reads them when it collects
// metrics. A nil provider means [otel.GetMeterProvider]. To stop, call Unregister of the returned
// registration, for example before you close the store.
//
// Watch each store once: the counters of registrations with equal attributes are added up. If a process
// has several stores, pass attributes that tell them apart. The error matches [limiter.ErrInvalid] if
// store is nil; any other error is the provider's.
func Watch(provider metric.MeterProvider, store Store, attrs ...attribute.KeyValue) (metric.Registration, error) {
	if v := reflect.ValueOf(store); store == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("otellimiter: %w: the store is nil (%T); pass what postgres.Open or sqlite.Open returned", limiter.ErrInvalid, store)
	}
	m := meterOf(provider)
	var errs [5]error
	counter := func(i int, name, unit, description string) metric.Int64ObservableCounter {
		var c metric.Int64ObservableCounter
		c, errs[i] = m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		return c
	}
	statements := counter(0, "sqlimit.store.statements", "{statement}", "Statements that decided operations.")
	rows := counter(1, "sqlimit.store.rows", "{row}", "Rows in these statements: one for each key.")
	units := counter(2, "sqlimit.store.units", "{operation}", "Operations in these statements.")
	retries := counter(3, "sqlimit.store.retries", "{operation}", "Operations that were sent again after a failure.")
	// It has no unit, because some exporters add "ratio" to the name of a gauge with the unit 1.
	breaker, err := m.Int64ObservableGauge("sqlimit.store.breaker.state",
		metric.WithDescription("1 while the breaker is open because the database does not answer, otherwise 0."))
	errs[4] = err
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("otellimiter: %w", err)
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := store.Stats()
		o.ObserveInt64(statements, s.Statements, set)
		o.ObserveInt64(rows, s.Rows, set)
		o.ObserveInt64(units, s.Units, set)
		o.ObserveInt64(retries, s.Retries, set)
		var open int64
		if s.BreakerOpen {
			open = 1
		}
		o.ObserveInt64(breaker, open, set)
		return nil
	}, statements, rows, units, retries, breaker)
	if err != nil {
		return nil, fmt.Errorf("otellimiter: %w", err)
	}
	return registration, nil
}
