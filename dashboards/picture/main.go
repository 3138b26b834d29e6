// Command picture draws decisions.svg. It puts load on a PostgreSQL database for two minutes, locks
// the tables for a while, records the metrics of package otellimiter each second, and draws what the
// queries of decisions.json answer.
//
//	DATABASE_URL=postgres://... go run ./dashboards/picture -out dashboards/decisions.svg
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/sqlimit/limiter/dashboards"
	"github.com/sqlimit/limiter/dashboards/internal/history"
)

func main() {
	out := flag.String("out", "decisions.svg", "the file to write")
	duration := flag.Duration("for", 2*time.Minute, "how long to put load on the database")
	flag.Parse()
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), *duration, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, duration time.Duration, out string) error {
	d, err := dashboards.Read("decisions.json")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "picture")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	h, err := history.New(dir)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))

	loadCtx, stop := context.WithTimeout(ctx, duration)
	defer stop()
	loaded := make(chan error, 1)
	go func() { loaded <- load(loadCtx, dsn, provider, duration) }()
	begin, ticker := time.Now(), time.NewTicker(time.Second)
	defer ticker.Stop()
	for loadCtx.Err() == nil {
		select {
		case <-ticker.C:
			if err := h.Scrape(ctx, registry, time.Now()); err != nil {
				return err
			}
		case <-loadCtx.Done():
		}
	}
	if err := <-loaded; err != nil {
		return err
	}
	query := func(expr string) ([]line, error) {
		expr = strings.NewReplacer("$limiter", ".*", "$__rate_interval", "5s").Replace(expr)
		matrix, err := h.Query(ctx, expr, begin.Add(6*time.Second), begin.Add(duration), time.Second)
		if err != nil {
			return nil, err
		}
		var lines []line
		for _, series := range matrix {
			l := line{labels: series.Metric.Map()}
			for _, p := range series.Floats {
				l.at = append(l.at, time.UnixMilli(p.T).Sub(begin).Seconds())
				l.values = append(l.values, p.F)
			}
			lines = append(lines, l)
		}
		return lines, nil
	}
	svg, err := drawPanels(d, query)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, svg, 0o644); err != nil { //nolint:gosec // a picture for everybody
		return fmt.Errorf("picture: %w", err)
	}
	return nil
}
