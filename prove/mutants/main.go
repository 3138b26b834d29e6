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

var (
	ofCatalog = flag.Bool("catalog", false, "plant the bugs of catalog.txt instead of generated mutants")
	match     = regexp.MustCompile("")
	tier      = flag.String("tier", "all", "which mutants: all, or ci (a sample)")
	known     = flag.Bool("known", false, "also try the mutants that may survive")
	list      = flag.Bool("list", false, "list the mutants and plant none")
	jobs      = flag.Int("jobs", 2, "how many to plant at a time")
	pkgDir    = flag.String("package", "", "only mutants of this directory, as in internal/batch")
	out       = flag.String("out", "", "write the results to this file")
)

func main() {
	flag.TextVar(match, "run", match, "a regular expression: only mutants whose names match")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	plant := plantGenerated
	if *ofCatalog {
		plant = plantCatalog
	}
	err := plant(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// survivors is the list of mutants that may survive, from the root of the repository.
const survivors = "prove/mutants/survivors.tsv"

const (
	budget       = 2 * time.Minute // of tier ci
	startTimeout = time.Minute     // of a server
)

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
	env := []string{"TMPDIR=" + temp}
	if os.Getenv(trial.DSN) == "" { // one server for all checks: otherwise each would start its own
		starting, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		p, err := daemon.StartPostgres(starting, dir, "max_connections=400", "fsync=off", "full_page_writes=off")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Stop()) }()
		env = append(env, trial.DSN+"="+p.DSN)
	}
	return f(root, dir, env)
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

func plantGenerated(ctx context.Context) error {
	if *tier != "ci" && *tier != "all" {
		return fmt.Errorf("-tier is %q; it must be ci or all", *tier)
	}
	c := &trial.Campaign{Plan: trial.Plan, Jobs: *jobs, Package: *pkgDir, Match: match, Out: os.Stdout, End: time.Now().Add(budget)}
	if *list {
		var err error
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
	return inPlace(ctx, func(root, dir string, env []string) (err error) {
		c.Root, c.Dir, c.Env = root, dir, env
		may, err := trial.ReadKnown(filepath.Join(root, survivors))
		if err != nil {
			return err
		}
		if !*known {
			c.Known = may
		}
		if *tier == "ci" {
			if c.Seed, err = output(ctx, root, "git", "rev-parse", "HEAD"); err != nil {
				return err
			}
		}
		results, err := c.Run(ctx)
		if *out != "" && len(results) > 0 {
			err = errors.Join(err, trial.Write(*out, results))
		}
		if unknown := may.Unknown(results); len(unknown) > 0 {
			err = errors.Join(err, fmt.Errorf("%d mutants survive: add a test for each, or a line with a reason to %s:\n%s", len(unknown), survivors, trial.Text(unknown)))
		}
		return err
	})
}
