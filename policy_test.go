package limiter_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestNewPolicies(t *testing.T) {
	t.Parallel()
	bucket := func(capacity, refill int64, interval time.Duration) limiter.Policy {
		return limiter.TokenBucket{Capacity: capacity, Refill: refill, Interval: interval}
	}
	window := func(limit int64, d time.Duration) limiter.Policy {
		return limiter.FixedWindow{Limit: limit, Window: d}
	}
	for _, test := range []struct {
		name   string
		policy limiter.Policy
		advice string // what the error says to do; "" if the policy is valid
	}{
		{"nil", nil, "pass a TokenBucket, a FixedWindow, a CalendarWindow or a SlidingWindow"},
		{"pointer to a bucket", &limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Second}, "pass the value"},
		{"nil pointer to a window", (*limiter.FixedWindow)(nil), "pass the value"},
		{"zero window", limiter.FixedWindow{}, "must be 1 to"},

		{"capacity 0", bucket(0, 1, time.Second), "at least 1"},
		{"lowest capacity", bucket(math.MinInt64, 1, time.Second), "at least 1"},
		{"refill 0", bucket(1, 0, time.Second), "Refill is 0; it must be at least 1"},
		{"interval 0", bucket(1, 1, 0), "at least 1ns"},
		{"lowest interval", bucket(1, 1, math.MinInt64), "at least 1ns"},
		{"interval over 30 years", bucket(1, 1, thirtyYears+1), "at most 30 years (262980h0m0s)"},
		{"longest interval", bucket(1, 1, math.MaxInt64), "at most 30 years"},
		{"step of 999 ns", bucket(1, 1, 999), "lower Refill or raise Interval"},
		{"step rounded up to 999 ns", bucket(1, 1001, 999_000), "lower Refill or raise Interval"},
		{"highest refill", bucket(1, math.MaxInt64, time.Second), "lower Refill or raise Interval"},
		{"fills in over 30 years", bucket(2, 1, thirtyYears/2+1), "lower Capacity or raise the rate"},
		{"fills in 2^63 ns", bucket(1<<43, 1, 1<<20), "lower Capacity or raise the rate"},
		{"fills in 2^64 ns and a bit", bucket(1<<44+1, 1, 1<<20), "lower Capacity or raise the rate"},
		{"all highest", bucket(math.MaxInt64, math.MaxInt64, math.MaxInt64), "at most 30 years"},

		{"limit -1", window(-1, time.Second), "must be 1 to"},
		{"limit over 2^60", window(1<<60+1, time.Second), "must be 1 to"},
		{"window 0", window(1, 0), "at least 1ms"},
		{"window under 1 ms", window(1, time.Millisecond-1), "at least 1ms"},
		{"window over 30 years", window(1, thirtyYears+1), "at most 30 years"},

		{"pointer to a calendar", &limiter.CalendarWindow{Limit: 1, Period: limiter.Day}, "pass the value"},
		{"zero calendar", limiter.CalendarWindow{}, "CalendarWindow.Limit is 0; it must be 1 to 2^60"},
		{"calendar limit over 2^60", limiter.CalendarWindow{Limit: 1<<60 + 1, Period: limiter.Day}, "CalendarWindow.Limit"},
		{"no period", limiter.CalendarWindow{Limit: 1}, "pass Day, Week, Month or Year"},
		{"unknown period", limiter.CalendarWindow{Limit: 1, Period: 5}, "CalendarWindow.Period is 5"},
		{"start day -1", limiter.CalendarWindow{Limit: 1, Period: limiter.Month, StartDay: -1}, "CalendarWindow.StartDay is -1; it must be 1 to 31"},
		{"start day 32", limiter.CalendarWindow{Limit: 1, Period: limiter.Month, StartDay: 32}, "CalendarWindow.StartDay is 32"},
		{"start day of a week", limiter.CalendarWindow{Limit: 1, Period: limiter.Week, StartDay: 1}, "leave StartDay out, or pass Month"},
		{"local time", limiter.CalendarWindow{Limit: 1, Period: limiter.Day, Location: time.Local}, "pass what time.LoadLocation returned"},

		{"sliding limit 0", limiter.SlidingWindow{Window: time.Second}, "SlidingWindow.Limit is 0; it must be 1 to 2^60"},
		{"sliding limit over 2^60", limiter.SlidingWindow{Limit: 1<<60 + 1, Window: time.Second}, "SlidingWindow.Limit"},
		{"sliding window under 16 ms", limiter.SlidingWindow{Limit: 1, Window: 16*time.Millisecond - 1}, "at least 16ms"},

		{"sliding window of 16 ms", limiter.SlidingWindow{Limit: 1 << 60, Window: 16 * time.Millisecond}, ""},
		{"calendar of 2^60", limiter.CalendarWindow{Limit: 1 << 60, Period: limiter.Year}, ""},
		{"month from day 31", limiter.CalendarWindow{Limit: 1, Period: limiter.Month, StartDay: 31, Location: time.UTC}, ""},
		{"fixed zone", limiter.CalendarWindow{Limit: 1, Period: limiter.Week, Location: time.FixedZone("here", 5400)}, ""},
		{"step of 1 µs", bucket(1, 1, time.Microsecond), ""},
		{"step rounded up to 1 µs", bucket(1, 1001, 1_000_001), ""},
		{"fills in 30 years", bucket(2, 1, thirtyYears/2), ""},
		{"interval of 30 years", bucket(1, 1, thirtyYears), ""},
		{"refill above capacity", bucket(1, 100, time.Second), ""},
		{"window of 1 ms", window(1<<60, time.Millisecond), ""},
		{"window of 30 years", window(1, thirtyYears), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, err := limiter.New(memory.New(), "l", test.policy)
			if test.advice == "" {
				testenv.ErrorIs(t, err, nil, "New")
				return
			}
			if !errors.Is(err, limiter.ErrInvalid) || l != nil {
				t.Fatalf("New = %v, %v, want ErrInvalid", l, err)
			}
			testenv.Contains(t, err.Error(), test.advice)
		})
	}
}

func TestTokenBucketStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		refill         int64
		interval, want time.Duration
	}{
		{3, time.Second, 333_333_334},
		{999_999, time.Second, 1001},
		{1, thirtyYears, thirtyYears},
		{1, 1, 1},
		{5, 3, 1},
		{0, time.Second, 0},
		{1, -1, 0},
		{math.MaxInt64, math.MaxInt64, 1},
	} {
		b := limiter.TokenBucket{Capacity: 1, Refill: test.refill, Interval: test.interval}
		testenv.Equal(t, b.Step(), test.want, "Step of", test.refill, "in", test.interval)
	}
	for window, want := range map[time.Duration]time.Duration{-1: 0, 0: 0, 1: 1, 16: 1, 17: 2, 32: 2, thirtyYears: thirtyYears / 16} {
		testenv.Equal(t, (limiter.SlidingWindow{Limit: 1, Window: window}).Slice(), want, "Slice of", window)
	}
}

// FuzzNew checks that a policy either is refused with a reason or works at the
// edges of its costs and of time.
func FuzzNew(f *testing.F) {
	f.Add(int64(5), int64(1), int64(time.Minute), false, "login", int64(1))
	f.Add(int64(1), int64(math.MaxInt64), int64(math.MaxInt64), false, "a.b_c:d/e-f", int64(math.MaxInt64))
	f.Add(int64(1)<<60, int64(1), int64(time.Millisecond), true, "", int64(1)<<60)
	f.Add(int64(1)<<40, int64(1_000_000), int64(time.Second), false, "x", int64(1)<<61)
	f.Fuzz(func(t *testing.T, limit, refill, span int64, window bool, name string, at int64) {
		var p limiter.Policy = limiter.TokenBucket{Capacity: limit, Refill: refill, Interval: time.Duration(span)}
		if window {
			p = limiter.FixedWindow{Limit: limit, Window: time.Duration(span), CountRejected: refill < 0}
		}
		now := time.Unix(0, at)
		l, err := limiter.New(oneRow(1), name, p, clockOf(&now)) // a store that is deterministic, as fuzzing wants it
		if err != nil {
			testenv.ErrorIs(t, err, limiter.ErrInvalid, fmt.Sprintf("New(%q)", name), p)
			return
		}
		for _, n := range []int64{1, limit, 1, limit, limit/2 + 1} {
			r, err := l.AllowN(t.Context(), "k", n)
			if errors.Is(err, limiter.ErrInvalid) && (at <= 0 || at >= 1<<61) {
				return // the clock
			}
			if err != nil {
				t.Fatalf("AllowN(%d) of %+v at %d: %v", n, p, at, err)
			}
			checkResult(t, r, n)
			if !r.Allowed && r.RetryAfter < limiter.MaxReserve {
				at += int64(r.RetryAfter)
				now = time.Unix(0, at)
			}
		}
	})
}

// checkResult checks what holds for every Result.
func checkResult(t *testing.T, r limiter.Result, n int64) {
	t.Helper()
	switch {
	case r.Remaining < 0 || r.Remaining > r.Limit:
		t.Errorf("AllowN(%d) = %+v: Remaining is not in [0, Limit]", n, r)
	case r.Used < 0 || r.RetryAfter < 0 || r.ResetAfter < 0:
		t.Errorf("AllowN(%d) = %+v: a negative number", n, r)
	case r.Allowed && (r.RetryAfter != 0 || r.ResetAfter == 0):
		t.Errorf("AllowN(%d) = %+v: allowed, but not charged or to be retried", n, r)
	case !r.Allowed && (r.RetryAfter == 0 || r.Remaining >= n):
		t.Errorf("AllowN(%d) = %+v: refused, although it fits", n, r)
	}
}

// A new kind of policy must change few files of the product beside its own.
func TestKindsAreData(t *testing.T) {
	t.Parallel()
	const most = 8
	other := regexp.MustCompile(`_test\.go$|^(prove|bench|examples|dashboards|storetest)/|^internal/(rowtest|dbtest|testenv|daemon|keyleak)/|` +
		`^((bucket|window|windows|calendar|inflight|concurrency|sliding|slices)|borrow/bucket)\.go$`) // tests, and those of a kind
	var named []string
	for file, text := range files(t, `\.go$`) {
		if !other.MatchString(file) && namesKind(t, file, text) {
			named = append(named, file)
		}
	}
	if len(named) > most {
		t.Errorf("%d files name kinds of policies, want at most %d:\n%s", len(named), most, strings.Join(named, "\n"))
	}
	if lines := strings.Count(read(t, "kind.go"), "\n"); lines > 300 {
		t.Errorf("kind.go has %d lines, want at most 300", lines)
	}
}

// namesKind reports whether the code of a file names a kind of policy.
func namesKind(t *testing.T, path, text string) (found bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && slices.Contains([]string{"TokenBucket", "FixedWindow", "CalendarWindow", "InFlight", "SlidingWindow", "KindBucket", "KindWindow", "KindInFlight", "KindSliding"}, name.Name)
		return !found
	})
	return found
}
