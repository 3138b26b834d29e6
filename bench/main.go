// Command bench measures limiter: beside other ways to limit, in tables that grow, and with keys that are
// busier than others. See its README.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
)

// studies are what the program measures, in this order. Each has a file of its own in the directory of
// results.
var studies = []struct {
	file, title string
	measure     func(context.Context, *backends) ([]section, error)
}{
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
	if schema := os.Getenv(workerSchema); schema != "" {
		return work(ctx, schema, os.Getenv(workerDSN))
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	b, err := newBackends(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var failed []error
	measured := false
	for _, s := range studies {
		began := time.Now()
		sections, err := s.measure(ctx, b)
		if ctx.Err() != nil {
			return err
		}
		failed = append(failed, err)
		if len(sections) == 0 {
			continue
		}
		measured = true
		text := report(s.title, describe(ctx, b), o, began, sections)
		fmt.Print(text)
		if err := os.WriteFile(filepath.Join(o.out, s.file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if !measured && errors.Join(failed...) == nil {
		failed = append(failed, errors.New("-run and -callers leave nothing to measure"))
	}
	return errors.Join(failed...)
}

type options struct {
	run             *regexp.Regexp // matches scenario/contender, and the names of other measurements
	callers         numbers        // only these in the comparison; empty: all
	length          time.Duration
	rounds, pool    int
	postgres, redis string
	out, dir        string

	rows                    int // of growth
	processes, cold, others int // of beside

	busyCallers, busyKeys int
	pools                 numbers
}

func (o options) warm() time.Duration { return o.length / load.Warmth }

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.run, o.pools = regexp.MustCompile(""), numbers{2, 4, 20}
	flags.DurationVar(&o.length, "time", 3*time.Second, "how long a case counts in each round")
	flags.IntVar(&o.rounds, "rounds", 5, "how many times each case is measured")
	flags.Var(&o.callers, "callers", "compare contenders with these numbers of callers only, separated by commas")
	flags.TextVar(o.run, "run", o.run, "only what this regular expression matches: hot/, /redis_rate, growth/sweep, beside, busykey/Reserve")
	flags.StringVar(&o.postgres, "postgres", "", "DSN of a PostgreSQL to use, for growth as a superuser; without it a temporary one is started")
	flags.IntVar(&o.pool, "pool", 16, "how many connections to PostgreSQL all contenders share")
	flags.StringVar(&o.redis, "redis", "", "host:port of a Redis to use; without it a temporary one is started")
	flags.StringVar(&o.out, "out", filepath.Join("bench", "results"), "directory for the tables and the plots")
	flags.StringVar(&o.dir, "dir", "", "directory for temporary servers and files; empty: the system's")
	flags.IntVar(&o.rows, "rows", 0, "growth: rows of the large table, and takes after which a table's size is told; 0 is 10,000,000, or 100,000 if -time is below 1s")
	flags.IntVar(&o.processes, "processes", 3, "beside: how many processes there are")
	flags.IntVar(&o.cold, "cold", 64, "beside: how many callers of each process use cold keys")
	flags.IntVar(&o.others, "others", 16, "beside: how many callers of each process come beside them")
	flags.IntVar(&o.busyCallers, "busy", 1000, "busykey: how many callers the busy key has")
	flags.IntVar(&o.busyKeys, "keys", 1, "busykey: how many keys these callers share; with many there is no busy key")
	flags.Var(&o.pools, "pools", "busykey: sizes of the pools of connections, separated by commas; 0 is a SQLite file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.rows == 0 {
		o.rows = 10_000_000
		if o.length < time.Second {
			o.rows = 100_000
		}
	}
	if min(o.rounds, o.processes, o.cold, o.others, o.busyCallers, o.busyKeys) < 1 || o.length <= 0 || o.pool < 2 || o.rows < 10_000 || flags.NArg() > 0 {
		return o, errors.New("-rows must be at least 10000, -time above 0, -pool at least 2, other numbers at least 1, and there are no arguments")
	}
	return o, os.MkdirAll(o.out, 0o755)
}

// numbers is the value of a flag: numbers of at least 0, separated by commas.
type numbers []int

func (n *numbers) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*n)), " ", ","), "[]")
}

func (n *numbers) Set(list string) error {
	*n = nil
	for _, field := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		v, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			return fmt.Errorf("%q is not a number of at least 0", field)
		}
		*n = append(*n, int(v))
	}
	return nil
}
