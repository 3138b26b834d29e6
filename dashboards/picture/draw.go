package main

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sqlimit/limiter/dashboards"
)

// line is one series of a panel.
type line struct {
	labels     map[string]string
	at, values []float64 // seconds since the start
}

// units are the names of Grafana's units.
var units = map[string]string{"reqps": "per second", "ops": "per second", "s": "seconds", "percentunit": "share", "short": ""}

const (
	column = 4 * vg.Inch / 8 // a column of 24
	row    = 2.6 * vg.Inch / 8
)

var variable = regexp.MustCompile(`{{(\w+)}}`)

// drawPanels draws the panels of a dashboard at their places.
func drawPanels(d dashboards.Dashboard, query func(expr string) ([]line, error)) ([]byte, error) {
	height := 0
	for _, p := range d.Panels {
		height = max(height, p.GridPos.Y+p.GridPos.H)
	}
	canvas := vgsvg.New(24*column, vg.Length(height)*row)
	whole := draw.New(canvas)
	for _, p := range d.Panels {
		panel, err := newPanel(p, query)
		if err != nil {
			return nil, err
		}
		at := p.GridPos
		const gap = vg.Length(8)
		panel.Draw(draw.Crop(whole,
			vg.Length(at.X)*column+gap, -vg.Length(24-at.X-at.W)*column-gap,
			vg.Length(height-at.Y-at.H)*row+gap, -vg.Length(at.Y)*row-gap))
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, fmt.Errorf("picture: %w", err)
	}
	return svg.Bytes(), nil
}

func newPanel(p dashboards.Panel, query func(expr string) ([]line, error)) (*plot.Plot, error) {
	panel := plot.New()
	panel.Title.Text = p.Title
	panel.Y.Label.Text = units[p.FieldConfig.Defaults.Unit]
	panel.X.Label.Text = "seconds"
	panel.X.Min, panel.Y.Min = 0, 0
	panel.Legend.Top, panel.Legend.Padding = true, 2
	panel.Add(plotter.NewGrid())
	color, highest := 0, 0.0
	for _, target := range p.Targets {
		lines, err := query(target.Expr)
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			var points plotter.XYs
			for i, at := range l.at {
				if !math.IsNaN(l.values[i]) && !math.IsInf(l.values[i], 0) {
					points = append(points, plotter.XY{X: at, Y: l.values[i]})
					highest = max(highest, l.values[i])
				}
			}
			if len(points) == 0 {
				continue
			}
			drawn, err := plotter.NewLine(points)
			if err != nil {
				return nil, fmt.Errorf("picture: %w", err)
			}
			drawn.Color, drawn.Width = plotutil.Color(color), 1.2
			color++
			panel.Add(drawn)
			panel.Legend.Add(variable.ReplaceAllStringFunc(target.LegendFormat, func(name string) string {
				return l.labels[strings.Trim(name, "{}")]
			}), drawn)
		}
	}
	if panel.Y.Max = highest * 1.35; highest == 0 { // the legend is above the lines
		panel.Y.Max = 1
	}
	return panel, nil
}
