// Command growth measures how the tables of limiter in PostgreSQL behave as they grow. It measures:
//
//   - the latency of a decision in a small and in a large table
//   - the share of updates that are HOT
//   - the size of a table after many takes
//   - the speed of a sweep, and the latency beside it
//   - the latency by plans that were made when the table was tiny
//
// Each figure has a target, and the report says which targets are missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/sqlimit/limiter/bench/internal/command"
	"github.com/sqlimit/limiter/bench/internal/machine"
	"github.com/sqlimit/limiter/bench/internal/pg"
)

func main() { command.Main("growth", run) }

// parts are all, in the order in which they are measured.
var parts = []struct {
	name    string // what -run matches
	measure func(context.Context, *bench) (section, error)
}{
	{"latency", measureLatency},
	{"hot", measureHOT},
	{"size", measureSize},
	{"sweep", measureSweep},
	{"plan", measurePlan},
}

func run(ctx context.Context) (err error) {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	began := time.Now()
	database, err := pg.Open(ctx, o.postgres, o.dir, fmt.Sprintf("growth_%d", os.Getpid()), o.pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	b := &bench{Database: database, options: o, began: began}
	var sections []section
	for _, p := range parts {
		if !o.run.MatchString(p.name) {
			continue
		}
		s, err := p.measure(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.progress("%s: %s", p.name, s.verdicts())
		sections = append(sections, s)
	}
	text := report(machine.Describe(ctx, o.dir, machine.Item{Name: "PostgreSQL", Value: b.Describe(ctx)}), began, sections)
	fmt.Print(text)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "growth.md"), []byte(text), 0o644)
}

type options struct {
	rows, takes  int
	length       time.Duration
	rounds, pool int
	run          *regexp.Regexp
	postgres     string
	out, dir     string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	flags.IntVar(&o.rows, "rows", 10_000_000, "rows of the large table; the small one has a thousandth, and the smaller one of the sweeps a tenth")
	flags.IntVar(&o.takes, "takes", 10_000_000, "takes after which a table's size is told; on a hundredth as many keys")
	flags.DurationVar(&o.length, "time", 3*time.Second, "how long a case counts in each round")
	flags.IntVar(&o.rounds, "rounds", 5, "how many times each case is measured")
	pattern := flags.String("run", "", "only the parts whose name this regular expression matches: latency, hot, size, sweep, plan")
	flags.StringVar(&o.postgres, "postgres", "", "DSN of a PostgreSQL to use, as a superuser; without it a temporary one is started")
	flags.IntVar(&o.pool, "pool", 16, "connections to PostgreSQL")
	flags.StringVar(&o.out, "out", filepath.Join("bench", "results"), "directory for growth.md")
	flags.StringVar(&o.dir, "dir", "", "directory for the temporary server; empty: the system's")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.rows < 10_000 || o.takes < 10_000 || o.length <= 0 || o.rounds < 1 || o.pool < 2 || flags.NArg() > 0 {
		return o, errors.New("-rows and -takes must be at least 10000, -time above 0, -rounds at least 1 and -pool 2, and there are no arguments")
	}
	o.run, err = regexp.Compile(*pattern)
	return o, err
}
