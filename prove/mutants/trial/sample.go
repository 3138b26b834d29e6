package trial

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sqlimit/limiter/prove/mutants/generate"
)

// sampledTargets is how many packages a sample is taken from.
const sampledTargets = 3

// Sample tries some mutants of listed packages in a limited time. The seed chooses them: the same seed chooses the same
// ones in the same order. It fails if one survives all tests and is not known.
func (c *Campaign) Sample(ctx context.Context, seed string, known Known, budget time.Duration) error {
	end := time.Now().Add(budget)
	wanted, err := c.begin(ctx)
	if err != nil {
		return err
	}
	targets := slices.DeleteFunc(slices.Clone(c.Plan), func(t Target) bool { return len(wanted[t.Dir]) == 0 || !known.lists(t.Dir) })
	if len(targets) == 0 {
		return errors.New("no mutant to sample: the list of known survivors has no such package")
	}
	order(targets, seed, func(t Target) string { return t.Dir })
	targets = targets[:min(sampledTargets, len(targets))]
	fmt.Fprintf(c.Out, "the sample of %s\n", seed)
	survivors := 0
	for i, target := range targets {
		mutants := slices.DeleteFunc(wanted[target.Dir], func(m *generate.Mutant) bool { _, ok := known[m.Identity()]; return ok })
		order(mutants, seed, (*generate.Mutant).Identity)
		share := time.Until(end) / time.Duration(len(targets)-i)
		alive, err := c.sampleOf(ctx, target, mutants, time.Now().Add(share))
		if err != nil {
			return err
		}
		survivors += alive
	}
	if survivors > 0 {
		return fmt.Errorf("%d mutants survive: add a test, or a line with a reason to the list of known survivors", survivors)
	}
	return nil
}

// order sorts a list by a hash of the seed and each name.
func order[T any](list []T, seed string, name func(T) string) {
	digest := func(e T) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(seed+"\n"+name(e)))) }
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(digest(a), digest(b)) })
}

// errTime ends a sample.
var errTime = errors.New("the time is over")

// sampleOf tries mutants of one package until its time is over. The quick tests come first. What
// they do not reach is not sampled. All tests run on what they do not kill.
func (c *Campaign) sampleOf(ctx context.Context, target Target, mutants []*generate.Mutant, end time.Time) (survivors int, err error) {
	quick, rest, err := c.quick(ctx, target)
	if err != nil {
		return 0, err
	}
	mutants = slices.DeleteFunc(mutants, func(m *generate.Mutant) bool { return quick.tests[0].reaches[m.Site] == 0 })
	tried, undecided := 0, 0
	err = c.each(ctx, len(mutants), func(i int) error {
		if time.Now().After(end) {
			return errTime
		}
		m := mutants[i]
		r := Result{Mutant: m, Outcome: Survived}
		for _, s := range append([]*suite{quick}, rest...) {
			took := s.tests[0].took
			if s != quick && time.Now().Add(took).After(end) {
				r.Outcome = "undecided"
				break
			}
			v, err := c.run(ctx, s.program, s.selected, m.ID, "", limit(s.tests))
			if err != nil {
				return err
			}
			if v.failed {
				r.Outcome, r.Test = Killed, s.program.pkg+" "+v.test
				break
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		tried++
		switch r.Outcome {
		case Survived:
			survivors++
		case "undecided":
			undecided++
		}
		fmt.Fprintln(c.Out, r)
		return nil
	})
	fmt.Fprintf(c.Out, "%s: %d of %d mutants were sampled: %d survived, %d undecided\n", target.Dir, tried, len(mutants), survivors, undecided)
	if errors.Is(err, errTime) {
		err = nil
	}
	return survivors, err
}

// quick returns the quick tests of a target, with what they reach, and all of its tests. Each is run
// as a whole.
func (c *Campaign) quick(ctx context.Context, target Target) (quick *suite, rest []*suite, err error) {
	match, err := regexp.Compile(target.Quick)
	if err != nil {
		return nil, nil, err
	}
	for i, which := range target.Suites {
		s, err := c.suite(ctx, which)
		if err != nil {
			return nil, nil, err
		}
		s.selected = names(s.tests)
		if i == 0 {
			t := &test{name: "selected"}
			selected := slices.DeleteFunc(slices.Clone(s.selected), func(name string) bool { return !match.MatchString(name) })
			quick = &suite{s.program, []*test{t}, selected}
			if err := c.record(ctx, s.program, t, selected, c.made.Sites); err != nil {
				return nil, nil, err
			}
			if t.bad != "" {
				return nil, nil, fmt.Errorf("%s %s: %s", s.program.pkg, strings.Join(selected, " "), t.bad)
			}
		}
		s.tests = []*test{{name: "all", took: which.Takes}}
		rest = append(rest, s)
	}
	return quick, rest, nil
}
