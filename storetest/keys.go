package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter"
)

var keyCases = []testCase{
	{
		"any string is a key",
		"a key is bytes: no encoding, collation, length or NUL makes it an error or another key",
		forEach(allPolicies, func(f *fixture, l *limiter.Limiter) {
			for i, key := range trickyKeys {
				r, err := l.AllowN(context.Background(), key, limitOf(l.Policy()))
				f.ok(err, "key %d, %s", i, show(key))
				if !r.Allowed {
					f.Errorf("key %d, %s, is the same key as one before it", i, show(key))
				}
			}
			for i, key := range trickyKeys {
				if r := f.allow(l, key, 1); r.Allowed {
					f.Errorf("key %d, %s, was forgotten", i, show(key))
				}
			}
			for _, key := range trickyKeys {
				f.refund(l, key, 2, true) // with CountRejected the refusal also counts
				f.passes(l, key, 1)
				f.reset(l, key)
				f.passes(l, key, limitOf(l.Policy()))
			}
		}),
	},
	{
		"names and keys do not run into each other",
		"limiter name and key are two things: no pair of them is another pair",
		func(f *fixture) {
			long := strings.Repeat("n", 64)
			pairs := [][2]string{
				{"a", "b_c"},
				{"a_b", "c"},
				{"a", "b:c"},
				{"a:b", "c"},
				{"a", "b/c"},
				{"a/b", "c"},
				{"a.b", "c"},
				{"a-b", "c"},
				{"ab", "c"},
				{"a", "bc"},
				{"a", "a"},
				{"A", "a"},
				{"A", "A"},
				{"a", "A"},
				{"1", "1"},
				{"01", "1"},
				{"abcdefghijklmnopqrstuvwxyz", "k"},
				{"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "k"},
				{"0123456789._:/-", "k"},
				{long, "k"},
				{long[1:], "nk"},
				{long[1:], "k"},
				{"-", "-"},
				{"--", "k"},
				{".", "."},
			}
			for _, p := range []limiter.Policy{bucket(1, s), window(1, 10*s)} {
				for _, first := range []bool{true, false} {
					for i, pair := range pairs {
						l := f.on(f.store, pair[0], p, limiter.WithClock(f.clock))
						if r := f.allow(l, pair[1], 1); r.Allowed != first {
							f.Errorf("pair %d, %q: the first time %v, allowed %v; want it to be a key of its own, and remembered", i, pair, first, r.Allowed)
						}
					}
				}
			}
		},
	},
	{
		"no error text holds the key",
		"keys are addresses and names: they do not belong into logs",
		func(f *fixture) {
			const key = "alice@example.com\nSecret"
			l := f.limiter("l", bucket(1, s))
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_, allowErr := l.Allow(gone, key)
			_, peekErr := l.Peek(gone, key)
			_, exceedsErr := l.AllowN(context.Background(), key, 2)
			_, negativeErr := l.AllowN(context.Background(), key, -2)
			_, refundErr := l.Refund(gone, key, 1)
			_, kindErr := f.store.Do(context.Background(), f.op(99, key))
			for i, err := range []error{
				allowErr, peekErr, exceedsErr, negativeErr, kindErr, refundErr, l.Reset(gone, key),
			} {
				if err == nil {
					f.Errorf("error %d is nil", i)
				} else if strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "Secret") {
					f.Errorf("error %d holds the key: %q", i, err)
				}
			}
		},
	},
}

// trickyKeys are pairwise different, and each is a trap of some encoding,
// collation, type or length.
var trickyKeys = func() []string {
	long := strings.Repeat("x", 255)
	sum := sha256.Sum256([]byte(long + "x"))
	nul := sha256.Sum256([]byte("\x00"))
	return []string{
		"a", "A", "a ", "a  ", " a", "a\t", "a\n", "a\r\n", "\u00e1", "a\u0301", "Á", "ä", "ae", "æ", "ß", "ss", "SS", "ẞ",
		"i", "I", "ı", "İ", "ﬀ", "ff", "\u2126", "\u03a9", "o\u0308", "\u00f6", "\u200b", "a\u200b", "\ufeffa", "日本", "🦜", "👩‍🚀", "👩🚀",
		"\x00", "\x00a", "a\x00", "a\x00b", "a\x00c", "\x00\x00", "\xff", "\xff\xff", "\xfe", "\x80", "\xc3\x28", "\xed\xa0\x80",
		"1", "1.0", "01", "1e0", "+1", "0x1", "true", "null", "NULL", "\\N", `\x61`, "x'61'", "%", "_", "a%", "%0A", "*",
		"'", "''", `"`, `\`, `\\`, "--", "; DROP TABLE limiter_token_buckets; --", "$1", "?", ":a", "{}", "[]", "(a,b)",
		long[:254], long, long + "x", long + "y", string(sum[:]), "\x00" + string(sum[:]), "\x00" + string(nul[:]),
		strings.Repeat("k", 10_000), strings.Repeat("k", 10_001), strings.Repeat("m", 1<<20), strings.Repeat("m", 1<<20) + "n",
		strings.Repeat("\xff", 255), strings.Repeat("\x00", 300), strings.Repeat("é", 127), strings.Repeat("é", 128),
	}
}()

func show(key string) string {
	if len(key) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", key[:40], len(key))
	}
	return fmt.Sprintf("%q", key)
}
