// Package dashboards has two dashboards for Grafana, alert rules for Prometheus, and the tests of their
// queries:
//
//   - decisions.json, for Prometheus: the metrics of package otellimiter
//   - rules.yaml, for Prometheus: alerts on these metrics
//   - keys.json, for PostgreSQL: the view limiter_remaining
//
// No program needs to import it. It is a module of its own because of the dependencies of its tests.
// To use a dashboard, import the file in Grafana: see docs/operations.md#dashboards.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed decisions.json keys.json
var files embed.FS

// Dashboard is what the tests and the picture need of a dashboard.
type Dashboard struct {
	UID        string
	Title      string
	Panels     []Panel
	Templating struct{ List []Variable }
}

// Panel is one panel of a dashboard.
type Panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []Target
}

// Target is one query of a panel: in PromQL or in SQL.
type Target struct {
	RefID        string
	Expr         string
	LegendFormat string
	RawSQL       string
}

// Variable is a variable that the user of a dashboard chooses.
type Variable struct {
	Name       string
	Type       string
	Definition string // the query
	AllValue   string
}

// Read returns the dashboard of a file, which is "decisions.json" or "keys.json".
func Read(file string) (d Dashboard, err error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return d, fmt.Errorf("dashboards: %w", err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("dashboards: %s: %w", file, err)
	}
	return d, nil
}
