package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Outcome is what came of a mutant.
type Outcome string

// The outcomes; all but Killed are failures.
const (
	Killed      Outcome = "killed"
	Survived    Outcome = "survived"     // a check of it passes
	WrongReason Outcome = "wrong reason" // a check of it fails, but says something else
	NoBuild     Outcome = "no build"     // the changed code does not compile
	NotPlanted  Outcome = "not planted"  // the text to be replaced is not there, or there twice
	NoCheck     Outcome = "no check"     // a check of it does not pass on the code as it is
	NotRun      Outcome = "not run"      // it could not be run, or not to its end
)

// Result is what came of a mutant, and how.
type Result struct {
	Mutant  Mutant
	Outcome Outcome
	Took    time.Duration
	Said    string // by the check, or why it was not run
}

// campaign plants mutants, several at a time.
type campaign struct {
	tests    tests
	dir      string // for what is made
	parallel int
	times    int          // how often a check is run on a mutant, to fail each time
	report   func(Result) // is called for one after another
}

// run first runs each check on the code as it is: one that fails there shows nothing. It
// returns the results in the order of the mutants.
func (c campaign) run(ctx context.Context, mutants []Mutant) []Result {
	sound := c.baseline(ctx, mutants)
	results := make([]Result, len(mutants))
	var mu sync.Mutex
	c.each(len(mutants), func(i int) {
		began := time.Now()
		r := Result{Mutant: mutants[i]}
		for _, check := range r.Mutant.Checks {
			if err := sound[check.command()]; err != nil {
				r.Outcome, r.Said = NoCheck, err.Error()
			}
		}
		if r.Outcome == "" {
			r.Outcome, r.Said = c.plant(ctx, r.Mutant)
		}
		r.Took = time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		results[i] = r
		c.report(r)
	})
	return results
}

// each calls f for 0 to n-1, several at a time.
func (c campaign) each(n int, f func(i int)) {
	work := make(chan int)
	var workers sync.WaitGroup
	for range c.parallel {
		workers.Go(func() {
			for i := range work {
				f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	workers.Wait()
}

// baseline runs the checks on the code as it is, and returns the errors by their ids.
func (c campaign) baseline(ctx context.Context, mutants []Mutant) map[string]error {
	var packages []string
	checks := map[string][]Check{} // of a package
	sound := map[string]error{}
	for _, m := range mutants {
		for _, check := range m.Checks {
			if _, known := sound[check.command()]; known {
				continue
			}
			sound[check.command()] = nil
			if checks[check.Package] == nil {
				packages = append(packages, check.Package)
			}
			checks[check.Package] = append(checks[check.Package], check)
		}
	}
	var mu sync.Mutex
	c.each(len(packages), func(i int) {
		for check, err := range c.pass(ctx, packages[i], checks[packages[i]]) {
			mu.Lock()
			sound[check] = err
			mu.Unlock()
		}
	})
	return sound
}

// pass runs the checks of a package on the code as it is.
func (c campaign) pass(ctx context.Context, pkg string, checks []Check) map[string]error {
	errs := map[string]error{}
	dir, err := os.MkdirTemp(c.dir, "code")
	if err == nil {
		defer os.RemoveAll(dir)
	}
	program := ""
	if err == nil {
		program, err = c.tests.build(ctx, pkg, "", dir)
	}
	for _, check := range checks {
		if err != nil {
			errs[check.command()] = err
			continue
		}
		if said, err := c.tests.run(ctx, program, check); err != nil {
			errs[check.command()] = fmt.Errorf("on the code as it is: %w\n%s", err, said)
		}
	}
	return errs
}

// plant plants one mutant and runs its checks, to the first that does not kill it.
func (c campaign) plant(ctx context.Context, m Mutant) (Outcome, string) {
	dir, err := os.MkdirTemp(c.dir, "mutant")
	if err != nil {
		return NotRun, err.Error()
	}
	defer os.RemoveAll(dir)
	root, err := filepath.Abs(c.tests.root)
	if err != nil {
		return NotRun, err.Error()
	}
	overlay, err := plant(root, dir, m.Edits)
	if err != nil {
		return NotPlanted, err.Error()
	}
	programs := map[string]string{}
	outcome, said := NotRun, "no check"
	for _, check := range m.Checks {
		program := programs[check.Package]
		if program == "" {
			if program, err = c.tests.build(ctx, check.Package, overlay, dir); err != nil {
				if ctx.Err() != nil {
					return NotRun, ctx.Err().Error()
				}
				return NoBuild, err.Error()
			}
			programs[check.Package] = program
		}
		for range c.times {
			one, words := c.check(ctx, program, check)
			if one != Killed {
				return one, check.command() + "\n" + words
			}
			outcome, said = Killed, words
		}
	}
	return outcome, said
}

// check runs a check of a mutant that is planted in a test program.
func (c campaign) check(ctx context.Context, program string, check Check) (Outcome, string) {
	said, err := c.tests.run(ctx, program, check)
	switch {
	case err == nil:
		return Survived, said
	case !errors.Is(err, errFailed):
		return NotRun, err.Error() + "\n" + said
	case !strings.Contains(said, check.Says):
		return WrongReason, fmt.Sprintf("it does not say %q, but\n%s", check.Says, said)
	}
	return Killed, said
}
