// Command bench measures limiter: beside other ways to limit, in tables that grow, and with keys that are
// busier than others. See its README.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// study is one of the things that the program measures. Each has a file of its own in the directory of results.
type study struct {
	file, title string
	measure     func(context.Context, *backends) ([]section, error)
}

var studies = []study{
	{"results.md", "Results", compareContenders},
	{"growth.md", "Growth", measureGrowth},
	{"beside.md", "A hot key beside cold keys", measureBeside},
	{"busykey.md", "A busy key, by operation", measureBusyKey},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	defer catch(&err)
	if schema := os.Getenv(workerSchema); schema != "" {
		work(ctx, schema, os.Getenv(workerDSN))
		return nil
	}
	o := try(parse(os.Args[1:]))
	var failed []error
	measured := false
	for _, s := range studies {
		text, err := s.report(ctx, o)
		if ctx.Err() != nil {
			return err
		}
		failed = append(failed, err)
		if text != "" {
			measured = true
			fmt.Print(text)
			must(os.WriteFile(filepath.Join(o.out, s.file), []byte(text), 0o644))
		}
	}
	if !measured && errors.Join(failed...) == nil {
		failed = append(failed, errors.New("-run and -callers leave nothing to measure"))
	}
	return errors.Join(failed...)
}

// report measures, with servers of its own, and returns a page of results, or nothing if nothing was measured.
func (s study) report(ctx context.Context, o options) (text string, err error) {
	defer catch(&err)
	b := newBackends(o)
	defer func() { err = errors.Join(err, b.close()) }()
	sections, err := s.measure(ctx, b)
	if len(sections) > 0 {
		text = report(s.title, describe(ctx, b), b, sections)
	}
	return text, err
}

// failure is an error without whose step a case or a study cannot go on. [must] panics with it, and [catch]
// returns it.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func try[T any](v T, err error) T {
	must(err)
	return v
}

// orNone is try, but no decision while counting is no failure: the calls that were in flight tell enough.
func orNone(m load.Measurement, err error) load.Measurement {
	if !errors.Is(err, load.ErrNone) {
		must(err)
	}
	return m
}

// catch sets err to the error that must was called with. Defer it.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

type options struct {
	run             *regexp.Regexp // matches scenario/contender, and the names of other measurements
	callers         []int          // only these in the comparison; empty: all
	length          time.Duration
	rounds, pool    int
	postgres, redis string
	out             string

	busyCallers, busyKeys int
	pools                 []int
}

func (o options) warm() time.Duration { return o.length / load.Warmth }

// rows is the number of rows of the large table of growth, and of takes after which a table's size is told.
func (o options) rows() int {
	if o.length < time.Second {
		return 100_000
	}
	return 10_000_000
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.run, o.pools = regexp.MustCompile(""), []int{2, 4, 20}
	numbers := func(name string, into *[]int, usage string) {
		flags.Func(name, usage+", separated by commas", func(list string) error { return json.Unmarshal([]byte("["+list+"]"), into) })
	}
	flags.DurationVar(&o.length, "time", 3*time.Second, "how long a case counts in each round")
	flags.IntVar(&o.rounds, "rounds", 5, "how many times each case is measured")
	numbers("callers", &o.callers, "compare contenders with these numbers of callers only")
	flags.TextVar(o.run, "run", o.run, "only what this regular expression matches: hot/, /redis_rate, growth/sweep, beside, busykey/Reserve")
	flags.StringVar(&o.postgres, "postgres", "", "DSN of a PostgreSQL to use, for growth as a superuser; without it a temporary one is started")
	flags.IntVar(&o.pool, "pool", 16, "how many connections to PostgreSQL all contenders share")
	flags.StringVar(&o.redis, "redis", "", "host:port of a Redis to use; without it a temporary one is started")
	flags.StringVar(&o.out, "out", filepath.Join("bench", "results"), "directory for the tables and the plots")
	flags.IntVar(&o.busyCallers, "busy", 1000, "busykey: how many callers the busy key has")
	flags.IntVar(&o.busyKeys, "keys", 1, "busykey: how many keys these callers share; with many there is no busy key")
	numbers("pools", &o.pools, "busykey: sizes of the pools of connections (default 2,4,20), 0 for a SQLite file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if min(o.rounds, o.busyCallers, o.busyKeys) < 1 || o.length <= 0 || o.pool < 2 || flags.NArg() > 0 {
		return o, errors.New("-time must be above 0, -pool at least 2, other numbers at least 1, and there are no arguments")
	}
	return o, os.MkdirAll(o.out, 0o755)
}
