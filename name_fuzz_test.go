package limiter_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)

// FuzzName checks that a limiter's name is one of those that the documentation allows,
// and that what is said of another can be printed anywhere: names stand in headers,
// problem documents and errors.
func FuzzName(f *testing.F) {
	for _, seed := range []string{
		"", "login", "a.b_c:d/e-f", strings.Repeat("x", 64), strings.Repeat("x", 65), "x\r\nSet-Cookie: a=b", "é", "\xff", "a b", "'; DROP TABLE x--", "a\x00", "\"", "a\u2028b",
	} {
		f.Add(seed)
	}
	store := memory.New()
	f.Fuzz(func(t *testing.T, name string) {
		l, err := limiter.New(store, name, limiter.PerSecond(1))
		if good := nameForm.MatchString(name); good != (err == nil) {
			t.Fatalf("New(%q): %v, want it to be good: %t", name, err, good)
		}
		if err == nil {
			if l.Name() != name {
				t.Errorf("the name %q became %q", name, l.Name())
			}
			return
		}
		if !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("New(%q): %v, want ErrInvalid", name, err)
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return r > unicode.MaxASCII || unicode.IsControl(r) }) {
			t.Errorf("the error has what cannot be printed: %q", err)
		}
	})
}
