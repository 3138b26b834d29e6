package limiter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
)

// samples are a policy of each kind, with a limit of 5. It comes back within an hour.
var samples = map[string]limiter.Policy{
	"bucket": limiter.PerHour(5), "window": limiter.FixedWindow{Limit: 5, Window: time.Hour},
	"counts":  limiter.FixedWindow{Limit: 5, Window: time.Hour, CountRejected: true},
	"sliding": limiter.SlidingWindow{Limit: 5, Window: 48 * time.Minute},
}

// randomPair returns a policy of any kind whose refusals change nothing, and one that a key may have had
// before.
func randomPair(r *rand.Rand) (now, before limiter.Policy) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	switch r.IntN(3) {
	case 0:
		w := limiter.SlidingWindow{Limit: 1 + r.Int64N(4), Window: 16*time.Millisecond + upTo(400*time.Millisecond)}
		return w, limiter.SlidingWindow{Limit: 1, Window: 16*time.Millisecond + upTo(2*w.Window)}
	case 1:
		w := limiter.FixedWindow{Limit: 1 + r.Int64N(4), Window: time.Millisecond + upTo(400*time.Millisecond)}
		return w, limiter.FixedWindow{Limit: 1, Window: time.Millisecond + upTo(2*w.Window)}
	}
	b := limiter.TokenBucket{Capacity: 1 + r.Int64N(4), Refill: 1 + r.Int64N(4), Interval: time.Microsecond*4 + upTo(400*time.Millisecond)}
	return b, limiter.TokenBucket{Capacity: 1 + r.Int64N(9), Refill: 1, Interval: time.Microsecond + upTo(4*b.Step())}
}

// spanOf is a bucket's step, or the length of a window.
func spanOf(p limiter.Policy) int64 {
	return tables.All[limiter.KindOf(p)-1].Numbers(&limiter.Op{Policy: p}, 0).Period
}

func limitOf(p limiter.Policy) int64 {
	return tables.All[limiter.KindOf(p)-1].Numbers(&limiter.Op{Policy: p}, 0).Limit
}

// A new kind of policy must change few files of the product beside its own.
func TestKindsAreData(t *testing.T) {
	t.Parallel()
	const most = 8
	own := []string{"bucket.go", "window.go", "windows.go", "calendar.go", "inflight.go", "concurrency.go", "sliding.go", "slices.go", "borrow/bucket.go"}
	other := []string{
		"prove", "bench", "examples", "dashboards", "storetest",
		"internal/rowtest", "internal/dbtest", "internal/testenv", "internal/daemon", "internal/keyleak",
	}
	var named []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(other, path) || len(path) > 1 && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !slices.Contains(own, path) && namesKind(t, path):
			named = append(named, path)
		}
		return nil
	})
	must(t, err)
	if len(named) > most {
		t.Errorf("%d files name kinds of policies, want at most %d:\n%s", len(named), most, strings.Join(named, "\n"))
	}
	text, err := os.ReadFile("kind.go")
	if lines := strings.Count(string(text), "\n"); err != nil || lines > 300 {
		t.Errorf("kind.go has %d lines, want at most 300: %v", lines, err)
	}
}

// namesKind reports whether the code of a file names a kind of policy.
func namesKind(t *testing.T, path string) (found bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && slices.Contains([]string{"TokenBucket", "FixedWindow", "CalendarWindow", "InFlight", "SlidingWindow", "KindBucket", "KindWindow", "KindInFlight", "KindSliding"}, name.Name)
		return !found
	})
	return found
}
