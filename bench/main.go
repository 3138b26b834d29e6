// Command bench measures limiter and other ways to limit side by side: on PostgreSQL, SQLite and
// Redis, and in the process. See its README.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sqlimit/limiter/bench/internal/command"
	"github.com/sqlimit/limiter/bench/internal/load"
)

func main() { command.Main("bench", run) }

func run(ctx context.Context) (err error) {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	groups := o.selection.plan()
	if len(groups) == 0 {
		return errors.New("-run and -callers leave nothing to measure")
	}
	b, err := newBackends(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r := &runner{backends: b, length: o.length, rounds: o.rounds, progress: newProgress(os.Stderr, groups, o.rounds)}
	began := time.Now()
	out, failed := r.measure(ctx, groups)
	if ctx.Err() != nil {
		return failed
	}
	text := report(describe(ctx, b), o, began, out)
	fmt.Print(text)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "results.md"), []byte(text), 0o644); err != nil {
		return err
	}
	return errors.Join(failed, out.plot(o.out))
}

// report returns all that is to be known of a run.
func report(environment string, o options, began time.Time, out *outcome) string {
	return fmt.Sprintf("## Results of %s\n\n%s- Method: %d rounds. A case runs for %v in each round, after a warm-up of %v. Cases that are compared take turns.\n\n%s",
		began.UTC().Format(time.DateOnly), environment, o.rounds, o.length, o.length/load.Warmth, out.markdown())
}

type options struct {
	selection       selection
	length          time.Duration
	rounds, pool    int
	postgres, redis string
	out, dir        string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.DurationVar(&o.length, "time", 3*time.Second, "how long a case counts in each round")
	flags.IntVar(&o.rounds, "rounds", 5, "how many times each case is measured")
	callers := flags.String("callers", "", "only these numbers of callers, separated by commas")
	pattern := flags.String("run", "", "only what this regular expression matches, of scenario/contender: hot/, /redis_rate")
	flags.StringVar(&o.postgres, "postgres", "", "DSN of a PostgreSQL to use; without it a temporary one is started")
	flags.IntVar(&o.pool, "pool", defaultPoolSize, "how many connections to PostgreSQL all contenders share")
	flags.StringVar(&o.redis, "redis", "", "host:port of a Redis to use; without it a temporary one is started")
	flags.StringVar(&o.out, "out", filepath.Join("bench", "results"), "directory for the table and the plots")
	flags.StringVar(&o.dir, "dir", "", "directory for temporary servers and files; empty: the system's")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.length <= 0 || o.rounds < 1 || o.pool < 1 || flags.NArg() > 0 {
		return o, errors.New("-time must be above 0, -rounds and -pool at least 1, and there are no arguments")
	}
	if o.selection.run, err = regexp.Compile(*pattern); err != nil {
		return o, err
	}
	for _, s := range strings.FieldsFunc(*callers, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return o, fmt.Errorf("-callers: %w", err)
		}
		o.selection.callers = append(o.selection.callers, n)
	}
	return o, nil
}
