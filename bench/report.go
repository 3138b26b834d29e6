package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
)

type section struct {
	title   string
	about   string // what was done
	columns []string
	text    int        // how many of the columns are text; the others are figures
	rows    [][]string // as many cells each
	targets []target
	after   string // a sentence below the table
}

// target is a bound, and the figure that has to keep to it.
type target struct {
	about  string // what the figure is, and its bound
	figure string
	met    bool
}

func (s *section) aim(met bool, figure, format string, args ...any) {
	s.targets = append(s.targets, target{fmt.Sprintf(format, args...), figure, met})
}

func (s *section) row(cells ...string) { s.rows = append(s.rows, cells) }

func (s *section) markdown() string {
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	fmt.Fprintf(&b, "### %s\n\n", s.title)
	if s.about != "" {
		fmt.Fprintf(&b, "%s\n\n", s.about)
	}
	line(s.columns...)
	fmt.Fprintf(&b, "|%s%s\n", strings.Repeat("---|", s.text), strings.Repeat("---:|", len(s.columns)-s.text))
	for _, row := range s.rows {
		line(row...)
	}
	if len(s.targets) > 0 {
		b.WriteString("\n| target | measured | |\n|---|---:|---|\n")
	}
	for _, t := range s.targets {
		line(t.about, t.figure, map[bool]string{true: "met", false: "MISSED"}[t.met])
	}
	if s.after != "" {
		fmt.Fprintf(&b, "\n%s\n", s.after)
	}
	return b.String()
}

func report(title, environment string, b *backends, sections []section) string {
	text := fmt.Sprintf("## %s, measured on %s\n\n%s- Method: %d rounds. A case runs for %v in each round, after a warm-up of %v. Cases that are compared take turns.\n",
		title, b.began.UTC().Format(time.DateOnly), environment, b.rounds, b.length, b.warm())
	for _, s := range sections {
		text += "\n" + s.markdown()
	}
	return text
}

// series is what a case gave in each round. A case that fails is not measured again.
type series struct {
	rounds []load.Measurement
	err    error
}

func (s *series) add(m load.Measurement, err error) {
	if s.err = err; err == nil {
		s.rounds = append(s.rounds, m)
	}
}

func (s *series) measured() bool { return s.err == nil && len(s.rounds) > 0 }

func (s *series) rate() stats.Spread { return stats.SpreadBy(s.rounds, perSecond) }

func (s *series) total() (sum load.Measurement) {
	for i := range s.rounds {
		sum.Requests += s.rounds[i].Requests
		sum.Latencies = append(sum.Latencies, s.rounds[i].Latencies...)
	}
	slices.Sort(sum.Latencies)
	return sum
}

// cells are the decisions a second, their spread, and p50 and p99.
func (s *series) cells() []string {
	rate, all := s.rate(), s.total()
	return []string{
		stats.Thousands(rate.Median), stats.Thousands(rate.Low) + " to " + stats.Thousands(rate.High),
		stats.Duration(stats.Quantile(all.Latencies, 0.5)), stats.Duration(stats.Quantile(all.Latencies, 0.99)),
	}
}

var cellTitles = []string{"decisions/s", "lowest to highest", "p50", "p99"}

func perSecond(m *load.Measurement) float64 { return m.Rate }
func median(m *load.Measurement) float64    { return float64(stats.Quantile(m.Latencies, 0.5)) }
func p99(m *load.Measurement) float64       { return float64(stats.Quantile(m.Latencies, 0.99)) }

// ratio returns the spread of the ratio to other in the same round: what changes from round to round, such
// as a neighbor's load, met both.
func (s *series) ratio(other *series, figure func(*load.Measurement) float64) stats.Spread {
	var values []float64
	for i := range min(len(s.rounds), len(other.rounds)) {
		if v := figure(&other.rounds[i]); v > 0 {
			values = append(values, figure(&s.rounds[i])/v)
		}
	}
	return stats.SpreadOf(values)
}

func bytesText(n int64) string {
	v, units := float64(n), []string{"B", "kB", "MB", "GB"}
	for v >= 999.5 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return fmt.Sprintf("%.3g %s", v, units[0])
}

// peers are the modules whose versions matter.
var peers = []string{
	"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/redis/rueidis",
	"github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3", "github.com/sethvargo/go-limiter",
	"github.com/go-chi/httprate", "golang.org/x/time",
}

// describe returns what the figures depend on, as a list. What cannot be found out is left out.
func describe(ctx context.Context, b *backends) string {
	var memory float64
	_, _ = fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%f kB", &memory) // 0 if it is unknown
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")                  // empty on another system
	var list strings.Builder
	for _, item := range slices.Concat([][2]string{
		{"Machine", fmt.Sprintf("%d × %s, %.0f GiB of memory; callers and servers share it", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory/(1<<20))},
		{"System", strings.TrimSpace(strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`) + ", Linux " + string(kernel))},
		{"Files", output(ctx, "findmnt", "--noheadings", "--output=FSTYPE", "--target="+b.temp)},
		{"Go", runtime.Version()},
		{"limiter", output(ctx, "git", "describe", "--always", "--dirty", "--tags")},
	}, b.servers, [][2]string{{"Modules", modules()}}) {
		if item[1] != "" {
			fmt.Fprintf(&list, "- %s: %s\n", item[0], item[1])
		}
	}
	return list.String()
}

func modules() string {
	info, _ := debug.ReadBuildInfo() // there is always one in a program that is built with modules
	var list []string
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			list = append(list, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
		}
	}
	return strings.Join(list, ", ")
}

// field returns the value of the first line "name: value" or "name=value" of a file.
func field(path, name string) string {
	text, _ := os.ReadFile(path) // empty on another system
	if found := regexp.MustCompile(`(?m)^` + name + `\s*[:=]\s*(.*)$`).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// output returns what a program prints, or nothing if it fails.
func output(ctx context.Context, program string, args ...string) string {
	out, _ := exec.CommandContext(ctx, program, args...).Output()
	return strings.TrimSpace(string(out))
}
