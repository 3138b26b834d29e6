package limiter

import (
	"errors"
	"strings"
	"testing"
)

// storedKey is the stored key, made twice.
func storedKey(key string, secret []byte) (string, error) {
	k := keyer{secret: secret}
	first, _ := k.stored(key, nil)
	again, err := k.stored(key, nil)
	if first != again {
		return "", errors.New("the key is not stored alike when a hash is used again")
	}
	return again, err
}

func TestStoredKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		key    string
		asIs   bool
		secret string
	}{
		{"a", true, ""},
		{"a\x00b", true, ""},
		{"\xff", true, ""},
		{strings.Repeat("x", 255), true, ""},
		{strings.Repeat("x", 256), false, ""},
		{"\x00", false, ""},
		{"\x00" + strings.Repeat("x", 32), false, ""},
		{"a", false, "secret"},
	} {
		var secret []byte
		if test.secret != "" {
			secret = []byte(test.secret)
		}
		got, err := storedKey(test.key, secret)
		if err != nil {
			t.Errorf("storedKey(%q): %v", test.key, err)
		}
		if (got == test.key) != test.asIs || !test.asIs && (len(got) != 33 || got[0] != 0) {
			t.Errorf("storedKey(%q, %q) = %q, want it stored as it is: %v", test.key, test.secret, got, test.asIs)
		}
	}
}

// FuzzKey checks that any string is a key and that no two are stored alike.
func FuzzKey(f *testing.F) {
	long := strings.Repeat("x", 256)
	stored, _ := storedKey(long, nil)
	f.Add("a", "b", "")
	f.Add("", "a", "")
	f.Add(long, stored, "")
	f.Add(long, stored[1:], "")
	f.Add("\x00", "\x00\x00", "")
	f.Add("a\x00", "a", "secret")
	f.Add("\xff\xfe", "\xff", "\x00")
	f.Fuzz(func(t *testing.T, a, b, secret string) {
		var mac []byte
		if secret != "" {
			mac = []byte(secret)
		}
		sa, errA := storedKey(a, mac)
		sb, errB := storedKey(b, mac)
		if (a == "") != errors.Is(errA, ErrInvalid) || (b == "") != errors.Is(errB, ErrInvalid) {
			t.Fatalf("storedKey(%q): %v; storedKey(%q): %v", a, errA, b, errB)
		}
		if errA != nil || errB != nil {
			return
		}
		if (a == b) != (sa == sb) {
			t.Errorf("%q is stored as %q, %q as %q", a, sa, b, sb)
		}
		if len(sa) < 1 || len(sa) > 255 {
			t.Errorf("%q is stored in %d bytes, want 1 to 255", a, len(sa))
		}
		if plain, _ := storedKey(a, nil); mac != nil && sa == plain {
			t.Errorf("%q is stored alike with and without a secret", a)
		}
	})
}
