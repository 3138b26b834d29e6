package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sqlimit/limiter/bench/internal/stats"
)

// Measures of a plot, in pixels.
const (
	plotWidth = 860
	plotLeft  = 290 // where bars begin; the names of contenders stand before it
	plotRight = 820
	barHeight = 13
	rowGap    = 10
	textLine  = 20
)

// colors are of the first, second, third and fourth number of callers, for eyes of every kind. The ceiling
// is gray.
var colors = []string{"#8db8d8", "#3f7fb5", "#123f66", "#061c30"}

const gray = "#b0b0b0"

// plot draws two plots a scenario, because decisions in the process are on another scale.
func plot(dir string, groups []group) {
	for _, sc := range scenarios {
		for suffix, inside := range map[string]bool{"": false, "-process": true} {
			var shown [][]testCase
			for _, c := range contenders {
				cases := slices.DeleteFunc(casesOf(groups, sc, c.name), func(c testCase) bool { return !c.measured() })
				if len(cases) > 0 && (c.backend == inProcess) == inside {
					shown = append(shown, cases)
				}
			}
			if text := drawing(sc.name+": "+sc.about, shown); text != "" {
				must(os.WriteFile(filepath.Join(dir, sc.name+suffix+".svg"), []byte(text), 0o644))
			}
		}
	}
}

// drawing returns a plot of the cases of some contenders, or nothing if none of them is a limiter. A
// ceiling that is far above the others leaves the plot.
func drawing(title string, shown [][]testCase) string {
	var callers []int
	highest, bars := 0.0, 0
	for _, cases := range shown {
		for _, c := range cases {
			if bars++; c.contender.rows == 0 {
				highest = max(highest, c.rate().High)
				callers = append(callers, c.callers)
			}
		}
	}
	if highest == 0 {
		return ""
	}
	slices.Sort(callers)
	callers = slices.Compact(callers)
	top := textLine * (len(callers) + 3)
	height := top + bars*barHeight + len(shown)*rowGap + 3*textLine
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="'Liberation Sans',Arial,Helvetica,sans-serif" font-size="13">`+
		"\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", plotWidth, height)
	text := func(x float64, y int, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s)
	}
	line := func(x1 float64, y1 int, x2 float64, y2 int, color string) {
		fmt.Fprintf(&b, "<path d=\"M%.1f %dL%.1f %d\" stroke=\"%s\"/>\n", x1, y1, x2, y2, color)
	}
	bar := func(x float64, y int, width float64, color string) {
		fmt.Fprintf(&b, "<rect x=\"%.0f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", x, y, width, barHeight-2, color)
	}
	at := func(v float64) float64 { return plotLeft + min(v/highest, 1)*(plotRight-plotLeft) }
	text(plotWidth/2, textLine, "middle", title)
	for i, n := range callers {
		bar(plotLeft, textLine*(i+2)-barHeight, 20, colors[i%len(colors)])
		text(plotLeft+28, textLine*(i+2)-2, "start", stats.Callers(n))
	}
	unit := math.Pow(10, math.Floor(math.Log10(highest)))
	if highest/unit < 3 {
		unit /= 2
	}
	for v := 0.0; v <= highest; v += unit {
		line(at(v), top-rowGap, at(v), height-3*textLine, "#dddddd")
		text(at(v), height-2*textLine, "middle", stats.Thousands(v))
	}
	text((plotLeft+plotRight)/2, height-textLine, "middle", "decisions per second: median (bar), lowest to highest (line)")
	y := top
	for _, cases := range shown {
		name := cases[0].contender.title
		if cases[0].contender.rows > 0 {
			name = fmt.Sprintf("%s (%s/s)", name, stats.Thousands(cases[0].rate().Median))
		}
		text(plotLeft-rowGap, y+len(cases)*barHeight/2+4, "end", name)
		for _, c := range cases {
			color := gray
			if c.contender.rows == 0 {
				color = colors[slices.Index(callers, c.callers)%len(colors)]
			}
			rate := c.rate()
			bar(plotLeft, y, at(rate.Median)-plotLeft, color)
			line(at(rate.Low), y+barHeight/2-1, at(rate.High), y+barHeight/2-1, "black")
			y += barHeight
		}
		y += rowGap
	}
	b.WriteString("</svg>\n")
	return b.String()
}
