package dashboards_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/otellimiter"
)

func Example() {
	exporter, err := prometheus.New()
	if err != nil {
		log.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	logins, err := limiter.New(memory.New(), "login", limiter.PerMinute(5),
		limiter.WithObserver(otellimiter.Observer(provider)))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())

	_, _ = logins.Allow(context.Background(), "alice@example.com")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "# TYPE sqlimit_") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// # TYPE sqlimit_decision_duration_seconds histogram
	// # TYPE sqlimit_decisions_total counter
	// # TYPE sqlimit_units_total counter
}
