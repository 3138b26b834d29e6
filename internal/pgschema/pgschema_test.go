package pgschema_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// A name that passes Check is one quoted identifier, and no server shortens or folds it. The error for
// any other name can be printed.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"public", `a"; DROP TABLE b; --`, `a""b`, "a.b", "a'--", "$$", "U&\"", "a\x00", "/*", "\r\n", "\u00a0", "\u202e", "\xff",
		"_", "user", "s2", strings.Repeat("a", 48), strings.Repeat("a", 49), "ſ", "K", "a\u0301",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := pgschema.Check(name)
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("Check(%q) = %v, want ErrInvalid", name, err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("the error %q has a character that cannot be printed", err)
			}
			return
		}
		quoted := pgschema.Quote(name)
		if inner, ok := strings.CutPrefix(quoted, `"`); !ok || inner != name+`"` || len(name) < 1 || len(name) > 63 {
			t.Fatalf("Quote(%q) = %s, want the name in quotes and at most 63 bytes", name, quoted)
		}
		for _, c := range []byte(name) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
				t.Fatalf("Check accepts %q, which contains %q", name, c)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		pgschema.Default: true, "_": true, "user": true, "app_2": true, strings.Repeat("a", 48): true,
		"": false, "App": false, "2app": false, "a-b": false, "a.b": false, `a"b`: false, "a\n": false, "é": false,
		`a"; DROP TABLE b; --`: false, "a\x00": false, "a b": false, "a'b": false, "a$b": false, "a\\": false, "\xff": false, "K": false,
		strings.Repeat("a", 49): false,
	} {
		err := pgschema.Check(name)
		if (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Check(%q) = %v, want good %v", name, err, good)
		}
	}
}
