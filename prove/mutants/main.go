// Command mutants plants known bugs in the code, one after another, and checks that the tests find
// them. See its README.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/prove/mutants/trial"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	var o options
	flags.BoolVar(&o.catalog, "catalog", false, "plant the bugs of catalog.txt instead of generated mutants")
	flags.StringVar(&o.names, "run", "", "a regular expression: only mutants whose names match")
	flags.StringVar(&o.tier, "tier", "all", "which mutants: all, or ci (a sample)")
	flags.BoolVar(&o.list, "list", false, "list the mutants and plant none")
	flags.IntVar(&o.jobs, "jobs", 2, "how many to plant at a time")
	flags.StringVar(&o.pkg, "package", "", "only mutants of this directory, as in internal/batch")
	flags.StringVar(&o.hints, "hints", "", "earlier results: the test that killed a mutant then is tried first")
	flags.BoolVar(&o.thorough, "thorough", false, "run all tests that reach a mutant, however long they take")
	flags.BoolVar(&o.compare, "compare", false, "compare two files of results: OLD NEW")
	flags.StringVar(&o.out, "out", "", "write the results to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.compare {
		if flags.NArg() != 2 {
			return errors.New("-compare needs two files of results")
		}
		return trial.Compare(os.Stdout, flags.Arg(0), flags.Arg(1))
	}
	if o.tier != "ci" && o.tier != "all" {
		return fmt.Errorf("-tier is %q; it must be ci or all", o.tier)
	}
	if o.catalog {
		return plantCatalog(ctx, o)
	}
	return plantGenerated(ctx, o)
}

type options struct {
	catalog, list, compare, thorough bool
	names, tier, pkg, out, hints     string
	jobs                             int
}

// survivors is the list of mutants that may survive, from the root of the repository.
const survivors = "prove/mutants/survivors.tsv"

// budget is how long tier ci may take.
const budget = 2 * time.Minute

// inPlace calls f with the root of the repository, a directory for what is made, and the environment
// of tests, which has a PostgreSQL.
func inPlace(ctx context.Context, f func(root, dir string, env []string) error) (err error) {
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Tests start servers as another user. Their files are also removed.
	temp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(temp, 0o700), os.Chmod(temp, 0o777|os.ModeSticky)); err != nil {
		return err
	}
	env, stop, err := server(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return f(root, dir, append(env, "TMPDIR="+temp))
}

// repository returns the root of the clone that this is run in.
func repository(ctx context.Context) (string, error) {
	return output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sqlimit/limiter")
}

// output returns the line that a command prints in dir.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s, in a clone of limiter: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// startTimeout is how long a server may take to be made and to start.
const startTimeout = time.Minute

// server starts a PostgreSQL of this machine in dir for all checks, unless the environment names
// one. Otherwise each check would start its own. It returns what to add to the checks' environment.
func server(ctx context.Context, dir string) (env []string, stop func() error, err error) {
	if os.Getenv(trial.DSN) != "" {
		return nil, func() error { return nil }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := daemon.StartPostgres(ctx, dir, "max_connections=400", "fsync=off", "full_page_writes=off")
	if err != nil {
		return nil, nil, err
	}
	return []string{trial.DSN + "=" + p.DSN}, p.Stop, nil
}

func plantGenerated(ctx context.Context, o options) error {
	match, err := regexp.Compile(o.names)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	c := &trial.Campaign{Plan: trial.Plan, Jobs: o.jobs, Package: o.pkg, Match: match, Out: os.Stdout, Thorough: o.thorough}
	if o.hints != "" {
		if c.Hints, err = trial.Read(o.hints); err != nil {
			return err
		}
	}
	if o.list {
		if c.Root, err = repository(ctx); err != nil {
			return err
		}
		wanted, err := c.Mutants(ctx)
		for _, target := range trial.Plan {
			for _, m := range wanted[target.Dir] {
				fmt.Println(m.Identity())
			}
		}
		return err
	}
	began := time.Now()
	return inPlace(ctx, func(root, dir string, env []string) error {
		c.Root, c.Dir, c.Env = root, dir, env
		known, err := trial.ReadKnown(filepath.Join(root, survivors))
		if err != nil {
			return err
		}
		if o.tier == "ci" {
			head, err := output(ctx, root, "git", "rev-parse", "HEAD")
			if err != nil {
				return err
			}
			return c.Sample(ctx, head, known, budget-time.Since(began))
		}
		results, err := c.Run(ctx)
		if o.out != "" && len(results) > 0 {
			err = errors.Join(err, trial.Write(o.out, results))
		}
		if unknown := known.Unknown(results); len(unknown) > 0 {
			err = errors.Join(err, fmt.Errorf("%d mutants survive that are not in %s", len(unknown), survivors))
		}
		return err
	})
}
