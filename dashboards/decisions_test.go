package dashboards_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/dashboards"
	"github.com/sqlimit/limiter/dashboards/internal/history"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/otellimiter"
	"github.com/sqlimit/limiter/sqlite"
)

const scrapes, interval = 9, 15 * time.Second

type broken struct{}

func (broken) Do(context.Context, limiter.Op) (limiter.State, error) {
	return limiter.State{}, fmt.Errorf("%w: the database is down", limiter.ErrNotApplied)
}

// exporter returns a provider of the OpenTelemetry SDK, the registry that gets its metrics, and an empty history.
func exporter(t *testing.T) (*prometheus.Registry, *metric.MeterProvider, *history.History) {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	testenv.Must(t, err)
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	h, err := history.New(t.TempDir())
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, h.Close()) })
	return registry, provider, h
}

// record decides and scrapes as programs and Prometheus do. Only the times of the scrapes are made up.
func record(t *testing.T) (h *history.History, registry *prometheus.Registry, end time.Time) {
	t.Helper()
	registry, provider, h := exporter(t)
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "limits.db"))
	testenv.Must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	testenv.Must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
	testenv.Must(t, testenv.ErrorOf(otellimiter.Watch(provider, store)))
	observe := limiter.WithObserver(otellimiter.Observer(provider))
	newLimiter := func(store limiter.Store, name string, opts ...limiter.Option) *limiter.Limiter {
		opts = append(opts, observe, limiter.WithTimeout(time.Minute))
		l, err := limiter.New(store, name, limiter.FixedWindow{Limit: 27, Window: 365 * 24 * time.Hour}, opts...)
		testenv.Must(t, err)
		return l
	}
	search := newLimiter(store, "search")                                     // it has room for 3 of 4 requests
	login := newLimiter(store, "login", limiter.WithDenyCache(10, time.Hour)) // it refuses most from memory
	local := newLimiter(broken{}, "local", limiter.FailLocal(memory.New()))
	open := newLimiter(broken{}, "open", limiter.FailOpen())
	closed := newLimiter(broken{}, "closed")

	end = time.Now()
	for n := range scrapes {
		for range 3 {
			_, _ = search.Allow(t.Context(), "key")
			_, _ = login.AllowN(t.Context(), "key", 9)
			_, _ = local.Allow(t.Context(), "key")
			_, _ = open.Allow(t.Context(), "key")
			_, _ = closed.Allow(t.Context(), "key")
		}
		_, _ = search.AllowN(t.Context(), "key", 27) // more than is left
		testenv.Must(t, h.Scrape(t.Context(), registry, end.Add(time.Duration(n-scrapes+1)*interval)))
	}
	return h, registry, end
}

const positive = -1 // value of a series

// panels has what each panel shows of what record does, by the legend.
var panels = map[string]map[string]float64{
	"Decisions by result":         {"allowed": 0.6, "refused": 4.0 / 15, "error": 0.2},
	"Share of refusals":           {"search": 0.25, "login": 1},
	"Units taken":                 {"search": 0.2, "login": 0, "local": 0.2, "open": 0.2},
	"Duration of decisions":       {"median": positive, "99 %": positive},
	"Decisions without the store": {"deny_cache": 0.2, "local": 0.2, "policy": 0.4},
	"Failures by class":           {"not_applied": 0.6},
	"Statements of the stores":    {"statements": 4.0 / 15, "retries": 0},
	"Takes in a statement":        {"takes": 1, "keys": 1},
	"Breakers that are open":      {"open": 0},
}

// expand replaces Grafana's variables as it does if all limiters are chosen.
func expand(t *testing.T, d dashboards.Dashboard, expr string) string {
	t.Helper()
	all := ""
	for _, v := range d.Templating.List {
		if v.Name == "limiter" {
			all = v.AllValue
		}
	}
	expr = strings.NewReplacer("$limiter", all, "$__rate_interval", "1m").Replace(expr)
	if all == "" || strings.Contains(expr, "$") {
		t.Fatalf("%s: a variable is not known", expr)
	}
	return expr
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	h, registry, end := record(t)
	d := read(t, "decisions.json")
	variable := regexp.MustCompile(`{{(\w+)}}`)
	queries := ""
	for _, p := range d.Panels {
		got := map[string]float64{}
		for _, target := range p.Targets {
			expr := expand(t, d, target.Expr)
			queries += expr + "\n"
			matrix, err := h.Query(t.Context(), expr, end, end, time.Second)
			if err != nil {
				t.Fatalf("%q: %v", p.Title, err)
			}
			for _, series := range matrix {
				legend := variable.ReplaceAllStringFunc(target.LegendFormat, func(name string) string {
					return series.Metric.Get(strings.Trim(name, "{}"))
				})
				got[legend] = series.Floats[len(series.Floats)-1].F
			}
		}
		want := panels[p.Title]
		if len(want) == 0 || len(got) != len(want) {
			t.Errorf("%q shows %v, want %v", p.Title, got, want)
		}
		for legend, value := range want {
			if shown, ok := got[legend]; !ok || value == positive && shown <= 0 || value != positive && math.Abs(shown-value) > 1e-9 {
				t.Errorf("%q shows %v of %s, want %v", p.Title, got, legend, value)
			}
		}
	}
	// The variable lists the limiters.
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("the variable %s has the query %s, want label_values(metric, label)", v.Name, v.Definition)
		}
		matrix, err := h.Query(t.Context(), "count by ("+m[2]+") ("+m[1]+")", end, end, time.Second)
		if err != nil || len(matrix) != 5 {
			t.Errorf("the variable %s has %d values (%v), want one for each of 5 limiters", v.Name, len(matrix), err)
		}
	}
	families, err := registry.Gather()
	testenv.Must(t, err)
	for _, f := range families {
		testenv.Equal(t, !strings.HasPrefix(f.GetName(), "sqlimit_") || strings.Contains(queries, f.GetName()), true, "a panel shows the metric", f.GetName())
	}
}

func read(t *testing.T, file string) dashboards.Dashboard {
	t.Helper()
	d, err := dashboards.Read(file)
	testenv.Must(t, err)
	return d
}

func TestPanels(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for _, file := range []string{"decisions.json", "keys.json"} {
		d := read(t, file)
		if uids[d.UID] || d.UID == "" || d.Title == "" || len(d.Panels) < 5 {
			t.Errorf("%s: uid %q, title %q, %d panels", file, d.UID, d.Title, len(d.Panels))
		}
		uids[d.UID] = true
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.ID < 1 || p.Title == "" || p.Description == "" || p.Type == "" || len(p.Targets) == 0 {
				t.Errorf("%s: a panel is not complete: %+v", file, p)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x > 23 {
						t.Fatalf("%s: %q is over %q, or outside of the 24 columns", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if refs[target.RefID] || target.RefID == "" || (target.Expr == "") == (target.RawSQL == "") {
					t.Errorf("%s: %q has the target %+v", file, p.Title, target)
				}
				refs[target.RefID] = true
			}
		}
	}
}

func TestPicture(t *testing.T) {
	t.Parallel()
	svg, err := os.ReadFile("decisions.svg")
	testenv.Must(t, err)
	for _, p := range read(t, "decisions.json").Panels {
		testenv.Equal(t, strings.Contains(string(svg), ">"+p.Title+"<"), true, "decisions.svg has (if not, draw it again as dashboards/picture says)", p.Title)
	}
}

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
