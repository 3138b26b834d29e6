package otellimiter_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"slices"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/limiterslog"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/otellimiter"
)

// watched is memory with statistics. In your program, it is a store of package postgres or sqlite.
type watched struct{ *memory.Store }

func (watched) Stats() limiter.StoreStats { return limiter.StoreStats{} }

func Example() {
	store := watched{memory.New()} // in your program: what postgres.Open or sqlite.Open returned
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader)) // in your program: with your exporter

	metrics, logs := otellimiter.Observer(provider), limiterslog.Observer(slog.Default())
	observe := func(ctx context.Context, d limiter.Decision) {
		metrics(ctx, d)
		logs(ctx, d)
	}
	logins, err := limiter.New(store, "login", limiter.PerMinute(2), limiter.WithObserver(observe))
	if err != nil {
		log.Fatal(err)
	}
	watch, err := otellimiter.Watch(provider, store) // Unregister it before you close the store
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = watch.Unregister() }()

	if _, err := logins.Allow(context.Background(), "alice@example.com"); err != nil {
		log.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	var names []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Println(name)
	}
	// Output:
	// sqlimit.decision.duration
	// sqlimit.decisions
	// sqlimit.store.breaker.state
	// sqlimit.store.retries
	// sqlimit.store.rows
	// sqlimit.store.statements
	// sqlimit.store.units
	// sqlimit.units
}
