// Command busykey measures what many callers of one key cost the callers of other keys, for every
// operation of a limiter. It reports how long the others wait, and how many requests pass only by
// FailOpen. It also reports the connections made, and the decisions on the busy key per second. Each
// case takes turns with one in which the busy key is a plain token bucket, whose takes merge.
//
//	go run ./bench/busykey
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sqlimit/limiter/bench/internal/command"
)

func main() { command.Main("busykey", run) }

// options are those of the command line.
type options struct {
	length          time.Duration
	rounds, callers int
	pools           []int
	sqlite          bool
	run             *regexp.Regexp
	postgres        string
	commitDelay     time.Duration
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("busykey", flag.ContinueOnError)
	flags.DurationVar(&o.length, "time", 2*time.Second, "how long a case counts in each round")
	flags.IntVar(&o.rounds, "rounds", 3, "how many times each case is measured")
	flags.IntVar(&o.callers, "callers", 1000, "how many callers the busy key has")
	flags.IntVar(&keys, "keys", 1, "how many keys these callers share; with many there is no busy key")
	pools := flags.String("pools", "2,4,20", "sizes of the pools of connections, separated by commas")
	flags.BoolVar(&o.sqlite, "sqlite", false, "measure a SQLite file instead of PostgreSQL")
	pattern := flags.String("run", "", "only the operations that this regular expression matches")
	flags.StringVar(&o.postgres, "postgres", "", "DSN of a PostgreSQL to use; without it a temporary one is started")
	flags.DurationVar(&o.commitDelay, "commit-delay", 0, "how much longer PostgreSQL makes each commit")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.length <= 0 || o.rounds < 1 || o.callers < 1 || keys < 1 || flags.NArg() > 0 {
		return o, errors.New("-time must be above 0, -rounds, -callers and -keys at least 1, and there are no arguments")
	}
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return o, err
	}
	for _, field := range strings.Split(*pools, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-pools: %q is not a number of at least 1", field)
		}
		o.pools = append(o.pools, n)
	}
	if o.sqlite {
		o.pools = []int{0}
	}
	return o, nil
}

func run(ctx context.Context) (err error) {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	b := &bench{options: o}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	return b.measure(ctx, os.Stdout)
}
