// Command growth measures how the tables of limiter in PostgreSQL behave as they grow and are used: the
// time of a decision in a small and in a large table, how many updates are HOT, how many bytes the
// tables take after many takes, what traffic notices of a sweep, and of a plan that was made when the
// table was tiny. Each has a target, and a figure that misses it is said to.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/bench/internal/machine"
	"github.com/sqlimit/limiter/bench/internal/pg"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

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
	dir, err := os.MkdirTemp(o.dir, "limiter-growth-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.postgres == "" {
		if err := os.Chmod(dir, 0o755); err != nil { // for the account that PostgreSQL runs as
			return err
		}
		dsn, stop, err := pg.Start(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		o.postgres = dsn
	}
	database, err := pg.Open(ctx, o.postgres, fmt.Sprintf("growth_%d", os.Getpid()), o.pool)
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
	text := report(machine.List(append(machine.Describe(ctx, dir), machine.Item{Name: "PostgreSQL", Value: b.Describe(ctx)})), began, sections)
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
	flags.IntVar(&o.rows, "rows", 10_000_000, "rows of the large table; the small one has a thousandth, and a tenth is swept")
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
