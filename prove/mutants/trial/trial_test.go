package trial

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

// small is a module with a mutant for each outcome.
var small = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26.0\n",
	"small.go": `package small

import "embed"

//go:embed sql/*.sql
var files embed.FS

func statement() string {
	b, _ := files.ReadFile("sql/take.sql")
	return database{}.Exec(string(b))
}

type database struct{}

func (database) Exec(text string) string { return text }

func sum(a, b int) int { return a + b }
func untested(a, b int) int { return a + b }
func unreached(a, b int) int { return a + b }

func endless(n int) {
	for n > 0 {
		n--
	}
}

func largest() uint8 { return 255 }
func minus(a, b int) int { return a - b }
func difference() int { return minus(5, 3) }
`,
	"sql/take.sql": "SELECT a FROM t WHERE a < 1\n",
	"small_test.go": `package small

import (
	"os"
	"testing"
)

func TestSum(t *testing.T) {
	for _, group := range []string{"small numbers", "large (1/2)"} {
		t.Run(group, func(t *testing.T) {
			if got := sum(2, 3); got != 5 {
				t.Errorf("the sum is %d, want 5", got)
			}
		})
	}
}

func TestUntested(t *testing.T) { t.Log(untested(1, 2)) }
func TestEndless(t *testing.T) { endless(3) }
func TestLargest(t *testing.T) { t.Log(largest()) }

func TestDifference(t *testing.T) {
	before := false
	t.Run("before", func(*testing.T) { before = true })
	t.Run("after", func(t *testing.T) {
		if got := difference(); !before || got == minus(3, 5) {
			t.Errorf("the difference is %d", got)
		}
	})
}

// TestText fails in the first of two runs only.
func TestText(t *testing.T) {
	file := os.Getenv("SMALL_FIRST")
	if text := statement(); text == "SELECT a FROM t WHERE a < 2\n" {
		if os.Remove(file) == nil {
			t.Error("by chance")
		}
	} else if text != "SELECT a FROM t WHERE a < 1\n" {
		t.Errorf("the text is %q", text)
	}
}
`,
}

func TestSubtestThatFailed(t *testing.T) {
	out := tail("=== RUN   TestA\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b_(1/2) (0.00s)\n    --- FAIL: TestA/c (0.00s)\n--- FAIL: TestAB (0.00s)\n")
	testenv.Equal(t, out.test(), "TestA/b_(1/2)", "the subtest")
	testenv.Equal(t, tail("=== RUN   TestA\n=== RUN   TestA/b\npanic: ").test(), "TestA", "the test that was running")
}

func TestOutcomes(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-buildvcs=false")
	root, dir := t.TempDir(), t.TempDir()
	first := filepath.Join(dir, "first")
	t.Setenv("SMALL_FIRST", first)
	for name, text := range small {
		file := filepath.Join(root, name)
		testenv.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testenv.Must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	testenv.Must(t, os.WriteFile(first, nil, 0o644))
	plan := []Target{{".", []Suite{{Package: ".", Takes: time.Second}}}}
	all := &Campaign{
		Plan: plan, Root: root, Dir: dir, Jobs: 2, Out: t.Output(),
		Match: regexp.MustCompile(`\tendless\tstatement|\tdifference\targuments|\t(sum|untested|unreached)\t|take.sql`),
	}
	results, err := all.Run(t.Context())
	testenv.Must(t, err)
	want := []string{
		"small.go\tdifference\targuments\tminus(5, 3)\tminus(3, 5)\t1\tkilled\t. TestDifference",
		"small.go\tendless\tstatement\tn--\t\t1\tkilled\t. TestEndless (timeout)",
		"small.go\tsum\toperand\ta + b\ta - b\t1\tkilled\t. TestSum",
		"small.go\tunreached\toperand\ta + b\ta - b\t1\tnot reached\t",
		"small.go\tuntested\toperand\ta + b\ta - b\t1\tsurvived\t",
		"sql/take.sql\t\tboundary\tSELECT a FROM t WHERE a < 1\tSELECT a FROM t WHERE a <= 1\t1\tkilled\t. TestText",
		"sql/take.sql\t\tcondition\ta < 1\t(true OR a < 1)\t1\tkilled\t. TestText",
		"sql/take.sql\t\tconstant\tSELECT a FROM t WHERE a < 1\tSELECT a FROM t WHERE a < 2\t1\tby chance\t. TestText",
	}
	testenv.Equal(t, Text(results), strings.Join(want, "\n")+"\n", "the results")

	// The test fails on all of them, and each of its parts on some.
	for name, kills := range map[string]string{"TestSum": "\tsum\t", "TestDifference": "\tdifference\t", "TestText": "\tboundary\t|\tcondition\t"} {
		t.Run(name+" on all at once", func(t *testing.T) {
			var left []*Result
			for _, r := range results {
				left = append(left, &Result{Mutant: r.Mutant, Outcome: Survived, rest: []*test{{}}})
			}
			for _, some := range batches(left) {
				testenv.Must(t, all.find(t.Context(), &test{pkg: ".", name: name, run: "^" + name + "$"}, some))
			}
			for _, r := range left {
				testenv.Equal(t, r.Outcome == Killed, regexp.MustCompile(kills).MatchString(r.Mutant.Identity()), name, r.Mutant.Identity())
			}
		})
	}

	for _, c := range []struct {
		name  string
		known Known
		want  int // mutants that survive and are not known; -1: an error
	}{
		{"a sample with a survivor", Known{"small.go\tother": "so that the package is listed"}, 1},
		{"a sample with a known survivor", Known{"small.go\tuntested\toperand\ta + b\ta - b\t1": "it is for show"}, 0},
		{"a sample of no package", nil, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Campaign{
				Plan: plan, Root: root, Dir: t.TempDir(), Jobs: 2, Match: regexp.MustCompile(`\t(sum|untested)\t`), Out: t.Output(),
				Seed: "seed", End: time.Now().Add(time.Minute), Known: c.known,
			}
			results, err := s.Run(t.Context())
			if unknown := c.known.Unknown(results); (err != nil) != (c.want < 0) || len(unknown) != max(0, c.want) {
				t.Errorf("%d mutants survive, %v; want %d", len(unknown), err, c.want)
			}
		})
	}
}
