// Package history records metrics as Prometheus does, and answers PromQL with Prometheus's own
// engine. The tests of the dashboards and their picture use it.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// History is a database of metrics. It is not safe for concurrent use.
type History struct {
	db     *tsdb.DB
	engine *promql.Engine
}

// New returns an empty history in a directory.
func New(dir string) (*History, error) {
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &History{db, promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})}, nil
}

// Close closes the database.
func (h *History) Close() error { return errors.Join(h.engine.Close(), h.db.Close()) }

// Scrape records what g has now, as if it were at.
func (h *History) Scrape(ctx context.Context, g prometheus.Gatherer, at time.Time) error {
	families, err := g.Gather()
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(at.UnixNano())}, families...)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	app := h.db.Appender(ctx)
	for _, s := range samples {
		names := make(map[string]string, len(s.Metric))
		for name, value := range s.Metric {
			names[string(name)] = string(value)
		}
		if _, err := app.Append(0, labels.FromMap(names), int64(s.Timestamp), float64(s.Value)); err != nil {
			return errors.Join(fmt.Errorf("history: %w", err), app.Rollback())
		}
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// Query evaluates an expression at each step from start to end.
func (h *History) Query(ctx context.Context, expr string, start, end time.Time, step time.Duration) (promql.Matrix, error) {
	query, err := h.engine.NewRangeQuery(ctx, h.db, nil, expr, start, end, step)
	if err != nil {
		return nil, fmt.Errorf("history: %s: %w", expr, err)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, fmt.Errorf("history: %s: %w", expr, result.Err)
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, fmt.Errorf("history: %s: %w", expr, err)
	}
	copied := make(promql.Matrix, len(matrix)) // the engine reuses the original after Close
	for i, series := range matrix {
		copied[i] = promql.Series{Metric: series.Metric, Floats: append([]promql.FPoint(nil), series.Floats...)}
	}
	return copied, nil
}
