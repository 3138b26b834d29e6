package limiter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestStoredKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 255)
	for key, plain := range map[string]bool{
		"a": true, "a\x00b": true, "\xff": true, "\u00e4nn@example.com": true, long: true,
		long + "x": false, "\x00": false, "\x00k": false, "\x00" + long[:32]: false,
	} {
		for _, secret := range [][]byte{nil, []byte("secret")} {
			store := &spyStore{Store: memory.New()}
			var opts []limiter.Option
			if secret != nil {
				opts = append(opts, limiter.WithKeyDigest(secret))
			}
			l := newLimiter(t, store, limiter.PerMinute(1), opts...)
			for range 2 { // a hash is used again
				if _, err := l.Allow(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			got, err := limiter.StoredKey(key, secret)
			if err != nil || got != store.ops[0].Key || got != store.ops[1].Key {
				t.Errorf("StoredKey(%q, %q) = %q, %v; the store got %q and %q", key, secret, got, err, store.ops[0].Key, store.ops[1].Key)
			}
			if asIs := plain && secret == nil; (got == key) != asIs || !asIs && (len(got) != 33 || got[0] != 0) {
				t.Errorf("StoredKey(%q, %q) = %q, want it stored as it is: %v", key, secret, got, asIs)
			}
		}
	}
	if got, err := limiter.StoredKey("k", []byte{}); !errors.Is(err, limiter.ErrInvalid) || got != "" {
		t.Errorf("StoredKey with an empty secret = %q, %v; want ErrInvalid", got, err)
	}
}

func TestStoredKeyOfAShortKeyIsFree(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = limiter.StoredKey("customer", nil) }); n != 0 {
		t.Errorf("StoredKey without a secret allocates %v times", n)
	}
}

// FuzzKey checks that any string is a key and that no two are stored alike.
func FuzzKey(f *testing.F) {
	long := strings.Repeat("x", 256)
	stored, _ := limiter.StoredKey(long, nil)
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
		sa, errA := limiter.StoredKey(a, mac)
		sb, errB := limiter.StoredKey(b, mac)
		if (a == "") != errors.Is(errA, limiter.ErrInvalid) || (b == "") != errors.Is(errB, limiter.ErrInvalid) {
			t.Fatalf("StoredKey(%q): %v; StoredKey(%q): %v", a, errA, b, errB)
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
		if plain, _ := limiter.StoredKey(a, nil); mac != nil && sa == plain {
			t.Errorf("%q is stored alike with and without a secret", a)
		}
	})
}
