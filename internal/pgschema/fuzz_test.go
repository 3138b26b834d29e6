package pgschema_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// FuzzCheck checks that a name which passes is one identifier when it is quoted, that no
// server cuts off or folds, and that what is said of another can be printed anywhere.
func FuzzCheck(f *testing.F) {
	for _, seed := range payloads()[:200] {
		f.Add(seed)
	}
	for _, seed := range []string{"public", "_", "user", "s2", strings.Repeat("a", 48), strings.Repeat("a", 49), "ſ", "K", "a\u0301"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := pgschema.Check(name)
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("Check(%q) = %v, want ErrInvalid", name, err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("the error has what cannot be printed: %q", err)
			}
			return
		}
		quoted := pgschema.Quote(name)
		if inner, ok := strings.CutPrefix(quoted, `"`); !ok || inner != name+`"` || len(name) < 1 || len(name) > 63 {
			t.Fatalf("%q becomes %s", name, quoted)
		}
		for _, c := range []byte(name) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
				t.Fatalf("%q has %q in it", name, c)
			}
		}
	})
}

// payloads are over a thousand names that would be SQL, or other names, if they were
// taken as they are.
func payloads() []string {
	var all []string
	for _, head := range []string{"", "public", "a", `"`, `""`, `a"`, `a""`, "a'", "a''", `a\"`, "a`", "a.", "$$", "a$b$", "E'", "U&\"", "a\x00", "[a]"} {
		for _, middle := range []string{
			".", ";", "; ", " ; DROP TABLE limiter_token_buckets", ".limiter_token_buckets; DELETE FROM public",
			".pg_class --", " UNION SELECT 1", " OR 1=1", "); SELECT pg_sleep(10)", "' OR ''='", "$1", "$$; SELECT 1; $$", "\\'; SELECT 1",
			", evil", "/* */", "/*", "*/", "%s", "%[1]s", "{{.}}", "\r\n", "\n", "\t", " ", "\u00a0", "\u2028", "\xff", "é", "A", "\u202e",
		} {
			for _, tail := range []string{"", "--", " #", "/*", `"`, `" `, "\x00", ";"} {
				all = append(all, head+middle+tail)
			}
		}
	}
	return all
}

func TestCheckRefusesWhatWouldBeSQL(t *testing.T) {
	t.Parallel()
	all, refused := payloads(), 0
	for _, name := range all {
		if err := pgschema.Check(name); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Check(%q) = %v, want ErrInvalid", name, err)
			continue
		}
		refused++
	}
	if refused < 1000 {
		t.Errorf("%d of %d payloads were refused, want at least 1,000", refused, len(all))
	}
	t.Logf("%d payloads were refused", refused)
}
