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
	"strings"
	"syscall"
	"time"

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
	flags.BoolVar(&o.verbose, "v", false, "also show those that are killed")
	flags.StringVar(&o.pkg, "package", "", "only mutants of this directory, as in internal/batch")
	flags.StringVar(&o.known, "known", filepath.Join("prove", "mutants", "survivors.tsv"), "the list of mutants that may survive, from the root of the repository")
	flags.StringVar(&o.hints, "hints", "", "earlier results: the test that killed a mutant then is tried first")
	flags.BoolVar(&o.thorough, "thorough", false, "run all tests that reach a mutant, however long they take")
	flags.BoolVar(&o.compare, "compare", false, "compare two files of results: OLD NEW")
	flags.DurationVar(&o.budget, "budget", 2*time.Minute, "how long tier ci may take")
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

// options are the values of the flags.
type options struct {
	catalog, list, verbose, compare, thorough bool
	names, tier, pkg, out, known, hints       string
	jobs                                      int
	budget                                    time.Duration
}

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
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sqlimit/limiter").Output()
	if err != nil {
		return "", fmt.Errorf("run it in a clone of limiter: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
