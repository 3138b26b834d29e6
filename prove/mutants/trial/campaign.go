package trial

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

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
	Hints   map[string]Line // earlier results: what killed a mutant then is tried first
	// Thorough is whether to run all tests that reach a mutant, however long they take.
	Thorough bool

	made     *generate.Result
	overlay  string // the file that names the changed files
	programs map[string]*program
	suites   map[Suite]*suite
	cleaner  cleaner
	failing  []string // tests that fail on the code as it is, or are too slow
	mu       sync.Mutex
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

func (c *Campaign) begin(ctx context.Context) (wanted map[string][]*generate.Mutant, err error) {
	if wanted, err = c.Mutants(ctx); err != nil {
		return nil, err
	}
	c.suites, c.programs = map[Suite]*suite{}, map[string]*program{}
	for _, variable := range c.Env {
		if dsn, ok := strings.CutPrefix(variable, DSN+"="); ok {
			c.cleaner.dsn = dsn
		}
	}
	replace := map[string]string{}
	for name, text := range c.made.Files {
		file := filepath.Join(c.Root, name)
		replace[file] = filepath.Join(c.Dir, strings.ReplaceAll(name, "/", "+"))
		if err := os.WriteFile(replace[file], []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	c.overlay, err = WriteOverlay(c.Dir, replace)
	return wanted, err
}

// prepare builds the tests of a target and records what each of them reaches.
func (c *Campaign) prepare(ctx context.Context, target Target) (suites []*suite, err error) {
	for _, which := range target.Suites {
		if c.suites[which] == nil {
			began := time.Now()
			s, err := c.suite(ctx, which)
			if err != nil {
				return nil, err
			}
			built := time.Since(began)
			err = c.each(ctx, len(s.tests), func(i int) error {
				return c.record(ctx, s.program, s.tests[i], []string{s.tests[i].name}, c.made.Sites)
			})
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

func (c *Campaign) tell(s *suite, built, recorded time.Duration) {
	used := 0
	var total time.Duration
	for _, t := range s.tests {
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

func (c *Campaign) tryAll(ctx context.Context, suites []*suite, mutants []*generate.Mutant) (results []Result, err error) {
	err = c.each(ctx, len(mutants), func(i int) error {
		r, err := c.try(ctx, suites, mutants[i])
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		results = append(results, r)
		if r.Outcome != Killed {
			fmt.Fprintln(c.Out, r)
		}
		return c.cleaner.clean(ctx)
	})
	return results, err
}

// each calls f for 0 to n-1, several at a time, up to the first error.
func (c *Campaign) each(ctx context.Context, n int, f func(i int) error) error {
	all, ended := errgroup.WithContext(ctx)
	all.SetLimit(max(1, c.Jobs))
	for i := range n {
		all.Go(func() error {
			if err := ended.Err(); err != nil {
				return err
			}
			return f(i)
		})
	}
	return all.Wait()
}

func (c *Campaign) sum(dir string, results []Result, took time.Duration) {
	counts := map[string]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	fmt.Fprintf(c.Out, "%s: %d mutants: %d killed, %d survived, %d by chance, %d not reached; %.0f s\n", dir, len(results),
		counts[Killed], counts[Survived], counts[ByChance], counts[NotReached], took.Seconds())
}

// DSN is the variable in which the tests look for a server; see package internal/dbtest.
const DSN = "LIMITER_TEST_POSTGRES_DSN"

// cleaner drops the databases that stopped tests leave behind. Without it they would fill the disk.
type cleaner struct {
	dsn  string
	seen map[string]bool // databases that were there the last time
	last time.Time
}

// A database that is there two times was left behind: no run takes as long as the time between.
const cleanEvery = 5 * time.Minute

func (c *cleaner) clean(ctx context.Context) error {
	if c.dsn == "" || time.Since(c.last) < cleanEvery {
		return nil
	}
	c.last = time.Now()
	conn, err := pgx.Connect(ctx, c.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT datname::text FROM pg_database WHERE datname LIKE 'limiter\_test\_%'`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		if c.seen[name] {
			if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
				return err
			}
			continue
		}
		there[name] = true
	}
	c.seen = there
	return nil
}
