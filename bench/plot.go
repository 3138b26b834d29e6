package main

import (
	"bytes"
	"fmt"
	"image/color"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/sqlimit/limiter/bench/internal/stats"
)

const (
	plotWidth  = 9 * vg.Inch
	barWidth   = vg.Length(9)
	barGap     = vg.Length(2)
	rowGap     = vg.Length(8)
	labelGap   = vg.Length(24) // for viewers whose letters are wider
	plotMargin = vg.Length(70) // title and axis
	legendLine = vg.Length(17) // height of an entry of the legend, which stands above the bars
)

// colors are of the first, second and third number of callers, for eyes of every kind; gray is of the
// ceiling.
var (
	colors = []color.Color{
		color.RGBA{R: 0x8d, G: 0xb8, B: 0xd8, A: 0xff}, color.RGBA{R: 0x3f, G: 0x7f, B: 0xb5, A: 0xff}, color.RGBA{R: 0x12, G: 0x3f, B: 0x66, A: 0xff},
	}
	gray = color.Gray{Y: 0xb0}
)

// plot draws two plots a scenario, as what is decided in the process is on another scale.
func (o *outcome) plot(dir string) error {
	for _, sc := range scenarios {
		for suffix, within := range map[string]func(contender) bool{
			"":         func(c contender) bool { return c.backend != inProcess },
			"-process": func(c contender) bool { return c.backend == inProcess },
		} {
			if err := o.plotScenario(filepath.Join(dir, sc.name+suffix+".svg"), sc, within); err != nil {
				return err
			}
		}
	}
	return nil
}

// plotScenario draws the contenders of a scenario that are within, if there are any.
func (o *outcome) plotScenario(path string, sc scenario, within func(contender) bool) error {
	var shown []contender // from the bottom to the top
	highest := 0.0        // of those that one can use
	callers := make(map[int]bool)
	for _, c := range slices.Backward(contenders) {
		found := o.measured(sc, c)
		if !within(c) || len(found) == 0 {
			continue
		}
		shown = append(shown, c)
		for n, s := range found {
			if c.rows == 0 {
				highest, callers[n] = max(highest, s.rate().High), true
			}
		}
	}
	if highest == 0 {
		return nil
	}
	p := newPlot(sc)
	numbers := slices.Sorted(maps.Keys(callers))
	for i, n := range numbers {
		bars := make([]bar, 0, len(shown))
		for row, c := range shown {
			y := float64(row) + (float64(len(numbers)-1)/2-float64(i))/barsARow(len(numbers))
			bars = append(bars, bar{y, o.measured(sc, c)[n]})
		}
		if err := addBars(p, bars, colors[i%len(colors)], stats.Callers(n)); err != nil {
			return err
		}
	}
	entries, titles := len(numbers), make([]string, 0, len(shown))
	for row, c := range shown {
		title := c.title
		if s := o.measured(sc, c)[batchers*c.rows]; s != nil && c.rows > 0 {
			// If it is far above the others, its bar leaves the plot.
			title = fmt.Sprintf("%s (%s/s)", c.title, stats.Thousands(s.rate().Median))
			entries++
			if err := addBars(p, []bar{{float64(row), s}}, gray, fmt.Sprintf("%d statements of %d rows", batchers, c.rows)); err != nil {
				return err
			}
		}
		titles = append(titles, title)
	}
	p.NominalY(titles...)
	p.Y.Padding = labelGap
	p.X.Min, p.X.Max = 0, highest
	row := vg.Length(len(numbers))*(barWidth+barGap) + rowGap
	legend := vg.Length(entries) * legendLine
	p.Y.Min, p.Y.Max = -0.5, float64(len(shown))-0.5+float64(legend/row)
	return save(p, vg.Length(len(shown))*row+legend+plotMargin, path)
}

// save writes a plot. A viewer that lacks its font is to take one with the same widths.
func save(p *plot.Plot, height vg.Length, path string) error {
	image, err := p.WriterTo(plotWidth, height, "svg")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := image.WriteTo(&b); err != nil {
		return err
	}
	fonts := []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	return os.WriteFile(path, bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), fonts), 0o644)
}

func newPlot(sc scenario) *plot.Plot {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.Title.Text = sc.name + ": " + sc.about
	p.Title.Padding = 2 * barGap
	p.Legend.Top, p.Legend.Left = true, true
	p.X.Label.Text = "decisions per second: median (bar), lowest to highest (line)"
	p.X.Tick.Marker = thousandsTicks{}
	lines := plotter.NewGrid()
	lines.Horizontal.Width = 0
	p.Add(lines)
	return p
}

// barsARow is how many bars would fit between two rows of n bars each, with the gap.
func barsARow(n int) float64 {
	bars := vg.Length(n) * (barWidth + barGap)
	return float64((bars + rowGap) / (barWidth + barGap))
}

// measured returns the series of a contender in a scenario, by the number of callers.
func (o *outcome) measured(sc scenario, c contender) map[int]*series {
	found := make(map[int]*series)
	for id, s := range o.series {
		if id.scenario == sc.name && id.contender == c.name && len(s.rates) > 0 {
			found[id.callers] = s
		}
	}
	return found
}

// bar is one of a plot; a nil series has none.
type bar struct {
	y      float64
	series *series
}

// addBars adds bars of one color, and the spread of each.
func addBars(p *plot.Plot, bars []bar, fill color.Color, label string) error {
	var spreads spreads
	for _, b := range bars {
		if b.series == nil || len(b.series.rates) == 0 {
			continue
		}
		r := b.series.rate()
		chart, err := plotter.NewBarChart(plotter.Values{r.Median}, barWidth)
		if err != nil {
			return err
		}
		chart.Horizontal, chart.XMin, chart.Color, chart.LineStyle.Width = true, b.y, fill, 0
		p.Add(chart)
		if len(spreads.XYs) == 0 {
			p.Legend.Add(label, chart)
		}
		spreads.XYs = append(spreads.XYs, plotter.XY{X: r.Median, Y: b.y})
		spreads.XErrors = append(spreads.XErrors, struct{ Low, High float64 }{r.Low - r.Median, r.High - r.Median})
	}
	if len(spreads.XYs) == 0 {
		return nil
	}
	lines, err := plotter.NewXErrorBars(spreads)
	if err != nil {
		return err
	}
	lines.CapWidth = barWidth / 2
	p.Add(lines)
	return nil
}

// spreads are points with what lies around them.
type spreads struct {
	plotter.XYs
	plotter.XErrors
}

// thousandsTicks are plot's own ticks with commas.
type thousandsTicks struct{}

func (thousandsTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = stats.Thousands(ticks[i].Value)
		}
	}
	return ticks
}
