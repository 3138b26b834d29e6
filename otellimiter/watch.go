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
	// Stats returns what the store has done. It is called each time the metrics are read, possibly
	// by several goroutines, and should not block.
	Stats() limiter.StoreStats
}

// Watch makes the statistics of a store metrics of provider, which reads them when it collects
// metrics. If provider is nil, it is [otel.GetMeterProvider]. Call Unregister of the returned
// registration to end that, for example before the store is closed.
//
// If a process has several stores, pass attributes that tell them apart. The error matches
// [limiter.ErrInvalid] if store is nil. Otherwise it is the provider's.
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
	// Without a unit: some exporters take a gauge of the unit 1 for a ratio.
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
