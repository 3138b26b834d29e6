package dashboards_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/otellimiter"
)

// open is the statistics of a store whose breaker is open.
type open struct{}

func (open) Stats() limiter.StoreStats { return limiter.StoreStats{BreakerOpen: true} }

// Each alert of a limiter has a limiter of its name. Only that alert fires for this limiter.
func TestAlerts(t *testing.T) {
	t.Parallel()
	registry, provider, h := exporter(t)
	testenv.Must(t, testenv.ErrorOf(otellimiter.Watch(provider, open{})))
	observe := otellimiter.Observer(provider)
	end := time.Now()
	for n := range scrapes {
		for name, err := range map[string]error{
			"LimiterStoreFails": limiter.ErrNotApplied, "LimiterMisconfigured": limiter.ErrMisconfigured,
			"LimiterKeyBusy": limiter.ErrKeyBusy, "left": limiter.ErrCanceled,
		} {
			observe(t.Context(), limiter.Decision{Limiter: name, Op: limiter.OpTake, Err: err})
		}
		observe(t.Context(), limiter.Decision{Limiter: "LimiterSlow", Op: limiter.OpTake, Duration: time.Second})
		observe(t.Context(), limiter.Decision{Limiter: "well", Op: limiter.OpTake, Duration: time.Millisecond})
		testenv.Must(t, h.Scrape(t.Context(), registry, end.Add(time.Duration(n-scrapes+1)*interval)))
	}
	groups, errs := rulefmt.ParseFile("rules.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	if len(errs) > 0 || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) != 5 {
		t.Fatalf("rules.yaml has %+v, want five rules: %v", groups, errs)
	}
	for _, rule := range groups.Groups[0].Rules {
		matrix, err := h.Query(t.Context(), rule.Expr, end, end, time.Second)
		if err != nil || len(matrix) != 1 {
			t.Fatalf("%s fires for %v (%v), want one series", rule.Alert, matrix, err)
		}
		if got := matrix[0].Metric.Get("sqlimit_limiter"); got != rule.Alert && rule.Alert != "LimiterBreakerOpen" {
			t.Errorf("%s fires for the limiter %s", rule.Alert, got)
		}
	}
}
