// Command beside measures what a hot key costs cold keys, in several processes that share a
// PostgreSQL. It reports the rate and the latency of decisions on cold keys, with and without callers
// of one hot key. If all cores are busy, any caller slows the others down. So it also measures as many
// callers of other cold keys.
//
//	go run ./bench/beside
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sqlimit/limiter/bench/internal/command"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/machine"
	"github.com/sqlimit/limiter/bench/internal/pg"
)

func main() {
	if schema := os.Getenv(workerSchema); schema != "" {
		command.Main("beside", func(ctx context.Context) error { return work(ctx, schema, os.Getenv(workerDSN)) })
		return
	}
	command.Main("beside", run)
}

// options are those of the command line.
type options struct {
	length            time.Duration
	rounds, processes int
	cold, others      int
	postgres, out     string
	dir               string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("beside", flag.ContinueOnError)
	flags.DurationVar(&o.length, "time", 3*time.Second, "how long a case counts in each round")
	flags.IntVar(&o.rounds, "rounds", 5, "how many times each case is measured")
	flags.IntVar(&o.processes, "processes", 3, "how many processes there are")
	flags.IntVar(&o.cold, "cold", 64, "how many callers of each have cold keys")
	flags.IntVar(&o.others, "others", 16, "how many callers of each come beside them")
	flags.StringVar(&o.postgres, "postgres", "", "DSN of a PostgreSQL to use; without it a temporary one is started")
	flags.StringVar(&o.out, "out", "", "file for the table, too")
	flags.StringVar(&o.dir, "dir", "", "directory for the temporary server; empty: the system's")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.length <= 0 || o.rounds < 1 || o.processes < 1 || o.cold < 1 || o.others < 1 || flags.NArg() > 0 {
		return o, errors.New("-time must be above 0, the numbers at least 1, and there are no arguments")
	}
	return o, nil
}

func run(ctx context.Context) (err error) {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	database, err := pg.Open(ctx, o.postgres, o.dir, fmt.Sprintf("beside_%d", os.Getpid()), 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	schema, err := database.Migrated(ctx, "ours")
	if err != nil {
		return err
	}
	began := time.Now()
	m := &meter{options: o, database: database}
	results, err := m.measure(ctx, database.DSN, schema)
	if err != nil {
		return err
	}
	environment := machine.Describe(ctx, o.dir, machine.Item{Name: "PostgreSQL", Value: database.Describe(ctx)})
	text := fmt.Sprintf("## A hot key beside cold keys, %s\n\n%s- Method: %d rounds. A case runs for %v in each round, after a warm-up of %v. The cases take turns.\n\n%s",
		began.UTC().Format(time.DateOnly), environment, o.rounds, o.length, o.length/load.Warmth, results.markdown(o))
	fmt.Print(text)
	if o.out == "" {
		return nil
	}
	return os.WriteFile(filepath.Clean(o.out), []byte(text), 0o644)
}
