// Command beside measures what a hot key costs the cold ones beside it, in several processes that share
// a PostgreSQL: how many decisions on cold keys a second there are, and how long they take, with and
// without callers who all want one key. On a machine whose cores are busy any caller costs the others
// something; so it also lets those callers have cold keys of their own.
//
//	go run ./bench/beside
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/bench/internal/machine"
	"github.com/sqlimit/limiter/bench/internal/pg"
)

// prefix is that of the schema's name.
const prefix = "beside"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if schema := os.Getenv(workerSchema); schema != "" {
		err = work(ctx, schema, os.Getenv(workerDSN))
	} else {
		err = run(ctx)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "beside:", err)
		os.Exit(1)
	}
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
	dir, err := os.MkdirTemp(o.dir, "limiter-beside-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // for the account that PostgreSQL runs as
		return err
	}
	dsn := o.postgres
	if dsn == "" {
		var stop func() error
		if dsn, stop, err = pg.Start(ctx, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	database, err := pg.Open(ctx, dsn, fmt.Sprintf("%s_%d", prefix, os.Getpid()), 2)
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
	results, err := m.measure(ctx, dsn, schema)
	if err != nil {
		return err
	}
	items := append(machine.Describe(ctx, dir), machine.Item{Name: "PostgreSQL", Value: database.Describe(ctx)})
	text := fmt.Sprintf("## A hot key beside cold ones, %s\n\n%s- Method: %d × %v a case, each after %v of warming up; the cases take turns\n\n%s",
		began.UTC().Format(time.DateOnly), machine.List(items), o.rounds, o.length, o.length/warmth, results.markdown(o))
	fmt.Print(text)
	if o.out == "" {
		return nil
	}
	return os.WriteFile(filepath.Clean(o.out), []byte(text), 0o644)
}
