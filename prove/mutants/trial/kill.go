package trial

import (
	"context"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter/prove/mutants/generate"
)

// The outcomes of a mutant.
const (
	Killed     = "killed"
	Survived   = "survived"
	ByChance   = "by chance"   // a test failed once and passed once, and no other failed twice
	NotReached = "not reached" // no test runs the code that it changes
)

// Result is what came of a mutant.
type Result struct {
	Mutant  *generate.Mutant
	Outcome string
	Test    string // what killed it, as in "./memory TestStore"
}

// try runs the tests that reach a mutant, until one fails twice. The hint is the test that killed it
// the last time.
func (c *Campaign) try(ctx context.Context, suites []*suite, m *generate.Mutant) (Result, error) {
	result := Result{Mutant: m, Outcome: NotReached}
	hint := strings.TrimSuffix(c.Hints[m.Identity()].Test, timeout)
	type run struct {
		suite *suite
		tests []*test
	}
	var runs []run
	for _, s := range suites {
		name, ok := strings.CutPrefix(hint, s.program.pkg+" ")
		if t := s.named(name); ok && t != nil {
			runs = append(runs, run{s, []*test{t}})
		}
	}
	for _, s := range suites {
		for _, tests := range groups(s.reaching(m.Site, c.Thorough)) {
			result.Outcome = Survived
			runs = append(runs, run{s, tests})
		}
	}
	for _, r := range runs {
		test, certain, err := c.kills(ctx, r.suite, r.tests, m)
		if err != nil {
			return result, err
		}
		if test == "" {
			continue
		}
		result.Outcome, result.Test = ByChance, r.suite.program.pkg+" "+test
		if certain {
			result.Outcome = Killed
			return result, nil
		}
	}
	return result, nil
}

// timeout follows the name of a test that did not end.
const timeout = " (timeout)"

// kills runs tests on a mutant. If one fails, it runs that one again, and then all of them if it
// passes alone.
func (c *Campaign) kills(ctx context.Context, s *suite, run []*test, m *generate.Mutant) (by string, certain bool, err error) {
	first, err := c.run(ctx, s.program, names(run), m.ID, "", limit(run))
	if err != nil || !first.failed {
		return "", false, err
	}
	if first.test == "" {
		first.test = "(start)"
	}
	if first.timedOut {
		return first.test + timeout, true, nil
	}
	alone := run
	for i, t := range run {
		if t.name == first.test {
			alone = []*test{run[i]}
		}
	}
	for _, again := range [][]*test{alone, run} {
		second, err := c.run(ctx, s.program, names(again), m.ID, "", limit(again))
		if err != nil {
			return "", false, err
		}
		if second.failed {
			return first.test, true, nil
		}
		if len(alone) == len(run) {
			break
		}
	}
	return first.test, false, nil
}

// String is one line for people.
func (r Result) String() string {
	m := r.Mutant
	return fmt.Sprintf("%-11s %s %s: %s: %s -> %s (%d) %s", r.Outcome, m.File, m.Func, m.Operator, m.Before, m.After, m.Ordinal, r.Test)
}
