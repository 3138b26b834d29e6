package limiter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestStoredKeyIsTheKeyThatTheStoreGets(t *testing.T) {
	t.Parallel()
	for _, secret := range [][]byte{nil, []byte("a secret")} {
		for _, key := range []string{"k", strings.Repeat("k", 255), strings.Repeat("k", 256), "\x00", "\x00k", "änn@example.com"} {
			store := &flakyStore{Store: memory.New()}
			var opts []limiter.Option
			if secret != nil {
				opts = append(opts, limiter.WithKeyDigest(secret))
			}
			l, err := limiter.New(store, "l", limiter.PerMinute(1), opts...)
			must(t, err)
			if _, err := l.Allow(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			got, err := limiter.StoredKey(key, secret)
			if err != nil || got != store.ops[0].Key {
				t.Errorf("StoredKey(%q, %q) = %q, %v; the store got %q", key, secret, got, err, store.ops[0].Key)
			}
		}
	}
	for _, c := range []struct {
		key    string
		secret []byte
	}{{"", nil}, {"", []byte("s")}, {"k", []byte{}}} {
		if got, err := limiter.StoredKey(c.key, c.secret); !errors.Is(err, limiter.ErrInvalid) || got != "" {
			t.Errorf("StoredKey(%q, %q) = %q, %v; want ErrInvalid", c.key, c.secret, got, err)
		}
	}
}

func TestStoredKeyOfAShortKeyIsFree(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = limiter.StoredKey("customer", nil) }); n != 0 {
		t.Errorf("StoredKey without a secret allocates %v times", n)
	}
}
