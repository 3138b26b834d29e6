//go:build unix

package main_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// keyOf, stateOf and policyOf are parts of the JSON of several commands.
type keyOf struct {
	Limiter string  `json:"limiter"`
	Key     *string `json:"key"`
	KeyHex  string  `json:"key_hex"`
}

type stateOf struct {
	Policy     policyOf `json:"policy"`
	Allowed    bool     `json:"allowed"`
	Used       int64    `json:"used"`
	Remaining  int64    `json:"remaining"`
	RetryAfter float64  `json:"retry_after_seconds"`
	ResetAfter float64  `json:"reset_after_seconds"`
}

type policyOf struct {
	Kind          string  `json:"kind"`
	Capacity      int64   `json:"capacity"`
	Refill        int64   `json:"refill"`
	Interval      float64 `json:"interval_seconds"`
	Limit         int64   `json:"limit"`
	Window        float64 `json:"window_seconds"`
	CountRejected bool    `json:"count_rejected"`
}

type peeked struct {
	keyOf
	States []stateOf `json:"states"`
	Known  []string  `json:"known_limiters"`
}

func TestPeek(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "login", bucket, "alice", 3)
		contains(t, succeeds(t, db.url, "peek", "login", "alice").stdout,
			`"alice"`, "bucket of 5, one back every 24h0m0s", "3 of 5", "remaining  2")
		got := decode[peeked](t, succeeds(t, db.url, "peek", "login", "alice", "--output", "json"))
		if got.Key == nil || *got.Key != "alice" || got.KeyHex != hex.EncodeToString([]byte("alice")) || len(got.States) != 1 {
			t.Fatalf("%+v, want one state of alice", got)
		}
		s := got.States[0]
		testenv.Equal(t, s.Policy, policyOf{Kind: "bucket", Capacity: 5, Refill: 1, Interval: 86400}, "policy")
		if !s.Allowed || s.Used != 3 || s.Remaining != 2 || s.ResetAfter < 3*86400-60 || s.ResetAfter > 3*86400 {
			t.Errorf("%+v, want 3 of 5 used, for 3 days", s)
		}

		use(t, db.store, "exports", window, "alice", 10)
		contains(t, succeeds(t, db.url, "peek", "exports", "alice").stdout, "10 of 10", "remaining  0", "refused")
		s = decode[peeked](t, succeeds(t, db.url, "peek", "exports", "alice", "-o", "json")).States[0]
		if s.Allowed || s.Used != 10 || s.Policy.Limit != 10 || s.RetryAfter <= 0 {
			t.Errorf("%+v, want a refusal, 10 of 10 used", s)
		}
	})
}

// hostile are keys that would harm a terminal, or are no text.
var hostile = map[string]string{
	"NUL":                  "a\x00b",
	"escape sequence":      "\x1b]0;owned\x07\x1b[2J",
	"invalid UTF-8":        "\xff\xfe",
	"C1 control character": "\u009b31m",
	"direction mark":       "user\u202etxt.exe",
	"line break":           "a\r\nb",
	"quote":                `"'\`,
}

func TestPeekHostileKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		for name, key := range hostile {
			use(t, db.store, "login", bucket, key, 1)
			in := hex.EncodeToString([]byte(key))
			// Every run checks that no control character is printed.
			contains(t, succeeds(t, db.url, "peek", "login", "--key-hex", in).stdout, "1 of 5")
			got := decode[peeked](t, succeeds(t, db.url, "peek", "login", "--key-hex", in, "-o", "json"))
			if got.KeyHex != in || len(got.States) != 1 || got.Key != nil && *got.Key != key || (got.Key == nil) != (key == "\xff\xfe") {
				t.Errorf("%s: %+v", name, got)
			}
			if !strings.Contains(key, "\x00") {
				contains(t, succeeds(t, db.url, "peek", "login", key).stdout, "1 of 5")
			}
		}
	})
}

func TestPeekDigestedKey(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		secret := filepath.Join(t.TempDir(), "secret")
		must(t, os.WriteFile(secret, []byte("0123456789abcdef"), 0o600))
		use(t, db.store, "login", bucket, "alice", 2, limiter.WithKeyDigest([]byte("0123456789abcdef")))
		got := decode[peeked](t, succeeds(t, db.url, "peek", "login", "alice", "--key-digest-file", secret, "-o", "json"))
		if got.Key != nil || len(got.States) != 1 || got.States[0].Used != 2 {
			t.Errorf("%+v", got)
		}
		contains(t, succeeds(t, db.url, "peek", "login", "--key-hex", "0x"+got.KeyHex).stdout, "0x"+got.KeyHex, "2 of 5")
	})
}

func TestUnreachableDatabase(t *testing.T) {
	t.Parallel()
	port, err := testenv.FreePort()
	must(t, err)
	fails(t, "postgres://user:hunter2@127.0.0.1:"+fmt.Sprint(port)+"/db", 3, []string{"connect"}, "peek", "login", "alice")
	path := filepath.Join(t.TempDir(), "missing.db")
	fails(t, "sqlite:"+path, 3, []string{"no such file", "migrate up"}, "peek", "login", "alice")
	testenv.ErrorIs(t, testenv.ErrorOf(os.Stat(path)), os.ErrNotExist, "the file that peek must not make")
}

func TestNoRow(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		contains(t, succeeds(t, db.url, "peek", "login", "alice").stdout, "no row; no limiter has any rows")
		use(t, db.store, "login", bucket, "alice", 1)
		use(t, db.store, "exports", window, "alice", 1)
		for _, c := range []struct {
			name, limiter, key, want string
			known                    []string
		}{
			{"a mistyped limiter", "logim", "alice", "no row; known limiters: exports, login\n", []string{"exports", "login"}},
			{"a mistyped key", "login", "alicia", "no row: the key is unused or mistyped; limiter login has other keys", nil},
		} {
			contains(t, succeeds(t, db.url, "peek", c.limiter, c.key).stdout, c.want)
			contains(t, succeeds(t, db.url, "reset", c.limiter, c.key).stdout, c.want)
			got := decode[peeked](t, succeeds(t, db.url, "peek", c.limiter, c.key, "-o", "json"))
			if len(got.States) != 0 || !slices.Equal(got.Known, c.known) {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
		for i := range 30 {
			use(t, db.store, fmt.Sprintf("many%02d", i), bucket, "alice", 1)
		}
		contains(t, succeeds(t, db.url, "peek", "logim", "alice").stdout, "known limiters: exports, login, many00", "many17, and more\n")
	})
}

// quota lies off the multiples of a period's length, wherever the calendar is.
var quota = limiter.CalendarWindow{Limit: 10, Period: limiter.Year, Location: time.FixedZone("here", 3600+1800)}

func TestCalendarQuota(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "exports", quota, "alice", 4)
		_, end := quota.Span(time.Now())
		s := decode[peeked](t, succeeds(t, db.url, "peek", "exports", "alice", "-o", "json")).States[0]
		if left := time.Until(end).Seconds(); !s.Allowed || s.Used != 4 || s.Remaining != 6 || s.ResetAfter < left-1 || s.ResetAfter > left+60 {
			t.Errorf("%+v, want 4 of 10 used, until the row's own window ends in %v s", s, left)
		}

		for _, key := range []string{"alice", "bob", "alice"} { // bob has no row, and then alice's has no start
			fails(t, db.url, 2, []string{"--period", "--location", "--start-day"}, "block", "exports", key, "--for", "1h")
			succeeds(t, db.url, "reset", "exports", key)
		}
		month := limiter.CalendarWindow{Limit: 10, Period: limiter.Month, StartDay: 17}
		use(t, db.store, "mails", month, "alice", 4)
		_, end = month.Span(time.Now().Add(time.Hour))
		for _, key := range []string{"alice", "bob"} {
			succeeds(t, db.url, "block", "mails", key, "--for", "1h", "--period", "month", "--start-day", "17")
			s := decode[peeked](t, succeeds(t, db.url, "peek", "mails", key, "-o", "json")).States[0]
			if left := time.Until(end).Seconds(); s.Allowed || s.RetryAfter < left-1 || s.RetryAfter > left+60 || s.Policy.Limit != 10 {
				t.Errorf("%s: %+v, want a block until the end of the period in %v s", key, s, left)
			}
		}
		fails(t, db.url, 2, []string{"pass --limit"}, "block", "none", "alice", "--for", "1h", "--period", "year")
	})
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		c, err := limiter.NewConcurrency(db.store, "exports", limiter.InFlight{Limit: 3, Hold: time.Hour}, limiter.WithTimeout(10*time.Second))
		must(t, err)
		for _, d := range []time.Duration{time.Hour, 2 * time.Hour} {
			if lease, err := c.TryAcquireFor(t.Context(), "alice", d); err != nil || !lease.Allowed {
				t.Fatalf("%+v, %v", lease.Result, err)
			}
		}
		contains(t, succeeds(t, db.url, "peek", "exports", "alice").stdout, "3 in flight", "2 of 3", "remaining  1")
		s := decode[peeked](t, succeeds(t, db.url, "peek", "exports", "alice", "-o", "json")).States[0]
		if s.Policy != (policyOf{Kind: "lease", Limit: 3}) || !s.Allowed || s.Used != 2 || s.ResetAfter < 7100 || s.ResetAfter > 7200 {
			t.Errorf("%+v, want 2 of 3 places taken for 2 h", s)
		}
		contains(t, succeeds(t, db.url, "top", "--once").stdout, "exports", "alice", "2 of 3")

		fails(t, db.url, 2, []string{"requests in flight", "cannot be blocked"}, "block", "exports", "alice", "--for", "1h")
		succeeds(t, db.url, "override", "set", "exports", "alice", "--limit", "9")
		fails(t, db.url, 2, []string{"1000"}, "override", "set", "exports", "alice", "--limit", "5000")
		contains(t, succeeds(t, db.url, "override", "list", "exports").stdout, "limit of 9")
		succeeds(t, db.url, "reset", "exports", "alice")
		if r, err := c.Peek(t.Context(), "alice"); err != nil || r.Used != 0 {
			t.Errorf("after reset: %+v, %v", r, err)
		}
	})
}
