package trial

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

	Seed  string    // if it is not empty, only a sample that it chooses
	End   time.Time // of the sample
	Known Known     // these mutants are not tried, and only their packages may be in the sample

	made    *generate.Result
	overlay string // the file that names the changed files
	suites  map[Suite]*suite
	found   map[string]int // how many mutants, by the mutant's file and the test
	failing []string       // tests that fail on the code as it is, or are too slow
	mu      sync.Mutex
}

// Mutants makes the mutants and returns those that are wanted and not known, by target.
func (c *Campaign) Mutants(ctx context.Context) (wanted map[string][]*generate.Mutant, err error) {
	var dirs []string
	for _, t := range c.Plan {
		dirs = append(dirs, t.Dir)
	}
	if c.made, err = generate.Packages(ctx, c.Root, dirs); err != nil {
		return nil, err
	}
	wanted = map[string][]*generate.Mutant{}
	for _, m := range c.made.Mutants {
		dir, id := m.Dir, m.Identity()
		if (c.Package == "" || filepath.Clean(c.Package) == dir) && (c.Match == nil || c.Match.MatchString(id)) && c.Known[id] == "" {
			wanted[dir] = append(wanted[dir], m)
		}
	}
	return wanted, nil
}

// Run tries all mutants that are wanted, or a sample. If ctx ends, it returns what it has.
func (c *Campaign) Run(ctx context.Context) (results []Result, err error) {
	wanted, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	targets := slices.DeleteFunc(slices.Clone(c.Plan), func(t Target) bool { return len(wanted[t.Dir]) == 0 })
	if c.Seed != "" {
		if targets = c.sample(targets); len(targets) == 0 {
			return nil, errors.New("no mutant to sample: the list of known survivors has no such package")
		}
	}
	for i, target := range targets {
		share := time.Until(c.End) / time.Duration(len(targets)-i)
		mutants, end := wanted[target.Dir], time.Now().Add(share)
		order(mutants, c.Seed, (*generate.Mutant).Identity)
		suites, err := c.prepare(ctx, target)
		if err != nil {
			return results, err
		}
		if c.Seed != "" { // what the first suite does not reach is not sampled
			mutants = slices.DeleteFunc(mutants, func(m *generate.Mutant) bool { return suites[0].tests[0].reaches[m.Site] == 0 })
		}
		began := time.Now()
		done, err := c.tryAll(ctx, suites, mutants, end)
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

// sampledTargets is how many packages a sample is taken from.
const sampledTargets = 3

// sample chooses some listed packages, but none with slow tests. The same seed chooses the same ones.
func (c *Campaign) sample(targets []Target) []Target {
	fmt.Fprintf(c.Out, "the sample of %s\n", c.Seed)
	targets = slices.DeleteFunc(targets, func(t Target) bool { return !c.Known.lists(t.Dir) || t.Suites[0].Takes >= longest })
	order(targets, c.Seed, func(t Target) string { return t.Dir })
	return targets[:min(sampledTargets, len(targets))]
}

// order sorts a list by a hash of the seed and each name.
func order[T any](list []T, seed string, name func(T) string) {
	digest := func(e T) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(seed+"\n"+name(e)))) }
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(digest(a), digest(b)) })
}

func (c *Campaign) begin(ctx context.Context) (wanted map[string][]*generate.Mutant, err error) {
	if wanted, err = c.Mutants(ctx); err != nil {
		return nil, err
	}
	c.suites, c.found = map[Suite]*suite{}, map[string]int{}
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
	if c.Seed != "" {
		return c.whole(ctx, target)
	}
	for _, which := range target.Suites {
		if c.suites[which] == nil {
			s, err := c.suite(ctx, which)
			if err != nil {
				return nil, err
			}
			if err := c.each(ctx, len(s.tests), func(i int) error { return c.record(ctx, s.tests[i]) }); err != nil {
				return nil, err
			}
			slices.SortFunc(s.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
			c.suites[which] = s
			c.tell(s)
		}
		suites = append(suites, c.suites[which])
	}
	return suites, nil
}

func (c *Campaign) tell(s *suite) {
	used := 0
	for _, t := range s.tests {
		switch t.bad {
		case "":
			used++
		case skipped, useless:
		default:
			c.failing = append(c.failing, s.pkg+" "+t.name)
			fmt.Fprintf(c.Out, "not used: %s %s: %s\n", s.pkg, t.name, t.bad)
		}
	}
	fmt.Fprintf(c.Out, "%s: %d of %d tests are used\n", s.pkg, used, len(s.tests))
}

// chunk is how many mutants are divided into batches. Then databases are dropped that stopped tests leave behind:
// they would fill the disk.
const chunk = 400

// tryAll tries mutants. A sample ends when its time is over. If it is stopped, some of the last chunk are undecided.
func (c *Campaign) tryAll(ctx context.Context, suites []*suite, mutants []*generate.Mutant, end time.Time) (results []Result, err error) {
	over := func() bool { return c.Seed != "" && time.Now().After(end) }
	for some := range slices.Chunk(mutants, chunk) {
		tried := make([]*Result, len(some))
		err = c.each(ctx, len(some), func(i int) (err error) {
			if !over() {
				tried[i], err = c.try(ctx, suites, some[i], end)
			}
			return err
		})
		tried = slices.DeleteFunc(tried, func(r *Result) bool { return r == nil })
		if err == nil && c.Seed == "" {
			left := batches(tried)
			err = c.each(ctx, len(left), func(i int) error { return c.tryTogether(ctx, suites, left[i]) })
		}
		for _, r := range tried {
			if err != nil && r.Outcome != Killed {
				r.Outcome = Undecided
			}
			if results = append(results, *r); r.Outcome != Killed && r.Outcome != Undecided {
				fmt.Fprintln(c.Out, r)
			}
		}
		if err == nil { // otherwise the server also stops
			err = c.clean(ctx)
		}
		if err != nil {
			return results, err
		}
	}
	return results, nil
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
	fmt.Fprintf(c.Out, "%s: %d mutants: %d killed, %d survived, %d by chance, %d not reached, %d undecided; %.0f s\n", dir, len(results),
		counts[Killed], counts[Survived], counts[ByChance], counts[NotReached], counts[Undecided], took.Seconds())
}

// DSN is the variable in which the tests look for a server; see package internal/dbtest.
const DSN = "LIMITER_TEST_POSTGRES_DSN"

// clean drops all databases of tests, if the server is that of the campaign. No test runs meanwhile.
func (c *Campaign) clean(ctx context.Context) error {
	i := slices.IndexFunc(c.Env, func(variable string) bool { return strings.HasPrefix(variable, DSN+"=") })
	if i < 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, strings.TrimPrefix(c.Env[i], DSN+"="))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database WHERE datname LIKE 'limiter\_test\_%'`)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, drop := range statements {
		_, failed := conn.Exec(ctx, drop)
		err = errors.Join(err, failed)
	}
	return err
}
