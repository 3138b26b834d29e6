package limiter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A new kind of policy must change few files of the product beside its own.
func TestKindsAreData(t *testing.T) {
	t.Parallel()
	const most = 8
	other := regexp.MustCompile(`_test\.go$|^(prove|bench|examples|dashboards|storetest)/|^internal/(rowtest|dbtest|testenv|daemon|keyleak)/|` +
		`^((bucket|window|windows|calendar|inflight|concurrency|sliding|slices)|borrow/bucket)\.go$`) // tests, and those of a kind
	var named []string
	for file, text := range files(t, `\.go$`) {
		if !other.MatchString(file) && namesKind(t, file, text) {
			named = append(named, file)
		}
	}
	if len(named) > most {
		t.Errorf("%d files name kinds of policies, want at most %d:\n%s", len(named), most, strings.Join(named, "\n"))
	}
	if lines := strings.Count(read(t, "kind.go"), "\n"); lines > 300 {
		t.Errorf("kind.go has %d lines, want at most 300", lines)
	}
}

// namesKind reports whether the code of a file names a kind of policy.
func namesKind(t *testing.T, path, text string) (found bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && slices.Contains([]string{"TokenBucket", "FixedWindow", "CalendarWindow", "InFlight", "SlidingWindow", "KindBucket", "KindWindow", "KindInFlight", "KindSliding"}, name.Name)
		return !found
	})
	return found
}
