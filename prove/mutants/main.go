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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
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

// longest is how long a check may take. Most take a second or two.
const longest = time.Minute

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	names := flags.String("run", "", "a regular expression: only mutants whose names match")
	tier := flags.String("tier", "all", "which mutants: all, or ci (one or two of each group)")
	list := flags.Bool("list", false, "list the mutants and plant none")
	parallel := flags.Int("p", runtime.NumCPU(), "how many to plant at a time")
	times := flags.Int("times", 1, "how often to run each check on its mutant; it has to fail each time")
	verbose := flags.Bool("v", false, "also show the output of checks that kill their mutant")
	if err := flags.Parse(args); err != nil {
		return err
	}
	groups, err := parse(catalogText)
	if err != nil {
		return err
	}
	mutants, err := selection(slices.Concat(groups...), *tier, *names)
	if err != nil {
		return err
	}
	if *list {
		for _, m := range mutants {
			fmt.Printf("%s: %s\n", m.Name, m.Bug)
			for _, check := range m.Checks {
				fmt.Printf("    %s\n", check.command())
			}
		}
		return nil
	}
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Checks start servers as another user. Their files are also removed.
	temp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(temp, 0o700), os.Chmod(temp, 0o777|os.ModeSticky)); err != nil {
		return err
	}
	env, stop, err := server(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	env = append(env, "TMPDIR="+temp)
	began := time.Now()
	c := campaign{tests: tests{root, env, longest}, dir: dir, parallel: max(1, *parallel), times: max(1, *times), report: func(r Result) { show(r, *verbose) }}
	results := c.run(ctx, mutants)
	return sum(results, time.Since(began))
}

// selection returns the mutants of a tier whose names match a regular expression.
func selection(mutants []Mutant, tier, names string) ([]Mutant, error) {
	if tier != "ci" && tier != "all" {
		return nil, fmt.Errorf("-tier is %q; it must be ci or all", tier)
	}
	wanted, err := regexp.Compile(names)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var selected []Mutant
	for _, m := range mutants {
		if wanted.MatchString(m.Name) && (m.CI || tier == "all") {
			selected = append(selected, m)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no mutant in tier %s matches %q; -list shows the names", tier, names)
	}
	return selected, nil
}

// repository returns the root of the clone that this is run in.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sqlimit/limiter").Output()
	if err != nil {
		return "", fmt.Errorf("run it in a clone of limiter: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// show prints one result.
func show(r Result, verbose bool) {
	fmt.Printf("%-12s %5.1f s  %s\n", r.Outcome, r.Took.Seconds(), r.Mutant.Name)
	if r.Outcome != Killed || verbose {
		fmt.Printf("    %s\n%s\n", r.Mutant.Bug, indent(ending(r.Said)))
	}
}

// shown is how many lines of what a check said are shown.
const shown = 60

// ending returns the last lines of a text.
func ending(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-shown):], "\n")
}

func indent(s string) string { return "        " + strings.ReplaceAll(s, "\n", "\n        ") }

// sum prints how many mutants were killed, and returns an error unless all were.
func sum(results []Result, took time.Duration) error {
	alive := 0
	for _, r := range results {
		if r.Outcome != Killed {
			alive++
		}
	}
	fmt.Printf("%d of %d mutants killed in %.0f s\n", len(results)-alive, len(results), took.Seconds())
	if alive > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", alive, len(results))
	}
	return nil
}
