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
		pgschema.Default, `a"; DROP TABLE b; --`, `a""b`, "a.b", "a'--", "$$", "U&\"", "a\x00", "/*", "\r\n", "\u00a0", "\u202e", "\xff", "",
		"_", "user", "s2", "2s", "App", "a-b", "a b", "a\n", `a\`, strings.Repeat("a", 48), strings.Repeat("a", 49), "ſ", "K", "a\u0301",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		good := len(name) >= 1 && len(name) <= 48 && (name[0] < '0' || name[0] > '9')
		for _, c := range []byte(name) {
			good = good && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
		}
		err := pgschema.Check(name)
		if (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Check(%q) = %v, want good %v", name, err, good)
		}
		if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the error %q has a character that cannot be printed", err)
		}
		if quoted := pgschema.Quote(name); good && quoted != `"`+name+`"` {
			t.Errorf("Quote(%q) = %s, want the name in quotes", name, quoted)
		}
	})
}
