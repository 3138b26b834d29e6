package trial

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sqlimit/limiter/prove/mutants/generate"
)

// Campaign tries mutants.
type Campaign struct {
	Plan    []Target
	Root    string
	Dir     string   // for what is made
	Env     []string // of all tests
	Jobs    int      // how many mutants to try at the same time
	Package string   // if it is not empty, only mutants of this directory
	Match   *regexp.Regexp
	Out     io.Writer
	Verbose bool
	Hints   map[string]Line // earlier results: what killed a mutant then is tried first
	// Thorough is whether to run all tests that reach a mutant, however long they take.
	Thorough bool

	made    *generate.Result
	builder *builder
	runner  *runner
	suites  map[Suite]*suite
	cleaner cleaner
	failing []string // tests that fail on the code as it is, or are too slow
	mu      sync.Mutex
}

// Mutants makes the mutants and returns those that are wanted, by target.
func (c *Campaign) Mutants(ctx context.Context) (wanted map[string][]*generate.Mutant, err error) {
	if c.made, err = generate.Packages(ctx, c.Root, dirs(c.Plan)); err != nil {
		return nil, err
	}
	wanted = map[string][]*generate.Mutant{}
	for _, m := range c.made.Mutants {
		dir := m.Dir
		if (c.Package == "" || filepath.Clean(c.Package) == dir) && (c.Match == nil || c.Match.MatchString(m.Identity())) {
			wanted[dir] = append(wanted[dir], m)
		}
	}
	return wanted, nil
}

// Run tries all mutants that are wanted. If ctx ends, it returns what it has.
func (c *Campaign) Run(ctx context.Context) (results []Result, err error) {
	wanted, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, target := range c.Plan {
		mutants := wanted[target.Dir]
		if len(mutants) == 0 {
			continue
		}
		suites, err := c.prepare(ctx, target)
		if err != nil {
			return results, err
		}
		began := time.Now()
		done, err := c.tryAll(ctx, suites, mutants)
		results = append(results, done...)
		c.sum(target.Dir, done, time.Since(began))
		if err != nil {
			return results, err
		}
	}
	if len(c.failing) > 0 {
		return results, fmt.Errorf("tests that are not used, although no mutant was chosen: %s", strings.Join(c.failing, ", "))
	}
	return results, nil
}

// begin makes the mutants and writes the changed files.
func (c *Campaign) begin(ctx context.Context) (wanted map[string][]*generate.Mutant, err error) {
	if wanted, err = c.Mutants(ctx); err != nil {
		return nil, err
	}
	c.runner = &runner{root: c.Root, temp: c.Dir, env: c.Env}
	c.suites = map[Suite]*suite{}
	for _, variable := range c.Env {
		if dsn, ok := strings.CutPrefix(variable, "LIMITER_TEST_POSTGRES_DSN="); ok {
			c.cleaner.dsn = dsn
		}
	}
	c.builder, err = newBuilder(c.Root, c.Dir, c.made.Files)
	return wanted, err
}

// prepare builds the tests of a target and records what each of them reaches.
func (c *Campaign) prepare(ctx context.Context, target Target) (suites []*suite, err error) {
	for _, which := range target.Suites {
		if c.suites[which] == nil {
			began := time.Now()
			p, err := c.builder.program(ctx, which.Package)
			if err != nil {
				return nil, err
			}
			built := time.Since(began)
			s, err := c.runner.list(ctx, p, which)
			if err != nil {
				return nil, err
			}
			err = c.each(len(s.tests), func(i int) error { return c.runner.record(ctx, p, s.tests[i], c.made.Sites) })
			if err != nil {
				return nil, err
			}
			c.suites[which] = s
			c.tell(s, built, time.Since(began)-built)
		}
		suites = append(suites, c.suites[which])
	}
	return suites, nil
}

// tell prints what became of the tests of a suite.
func (c *Campaign) tell(s *suite, built, recorded time.Duration) {
	used := 0
	var total time.Duration
	for _, t := range s.tests {
		if c.Verbose {
			fmt.Fprintf(c.Out, "%6.2f s, %5d sites: %s %s\n", t.took.Seconds(), bytes.Count(t.reaches, []byte{1}), s.program.pkg, t.name)
		}
		switch t.bad {
		case "":
			used++
			total += t.took
		case skipped, useless:
		default:
			c.failing = append(c.failing, s.program.pkg+" "+t.name)
			fmt.Fprintf(c.Out, "not used: %s %s: %s\n", s.program.pkg, t.name, t.bad)
		}
	}
	fmt.Fprintf(c.Out, "%s: %d of %d tests are used, %.0f s; built in %.0f s, recorded in %.0f s\n",
		s.program.pkg, used, len(s.tests), total.Seconds(), built.Seconds(), recorded.Seconds())
}

// tryAll tries mutants, several at a time.
func (c *Campaign) tryAll(ctx context.Context, suites []*suite, mutants []*generate.Mutant) (results []Result, err error) {
	err = c.each(len(mutants), func(i int) error {
		r, err := c.try(ctx, suites, mutants[i])
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		results = append(results, r)
		if r.Outcome != Killed || c.Verbose {
			fmt.Fprintln(c.Out, r)
		}
		return c.cleaner.clean(ctx)
	})
	return results, err
}

// each calls f for 0 to n-1, several at a time, up to the first error.
func (c *Campaign) each(n int, f func(i int) error) error {
	var mu sync.Mutex
	var first error
	next := 0
	var workers sync.WaitGroup
	for range max(1, c.Jobs) {
		workers.Go(func() {
			for {
				mu.Lock()
				i, stop := next, first != nil
				next++
				mu.Unlock()
				if stop || i >= n {
					return
				}
				if err := f(i); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return first
}

// sum prints how many mutants had each outcome.
func (c *Campaign) sum(dir string, results []Result, took time.Duration) {
	counts := map[string]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	fmt.Fprintf(c.Out, "%s: %d mutants: %d killed, %d survived, %d by chance, %d not reached; %.0f s\n", dir, len(results),
		counts[Killed], counts[Survived], counts[ByChance], counts[NotReached], took.Seconds())
}

// Write writes results to a file.
func Write(file string, results []Result) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(Text(results)), 0o644)
}
