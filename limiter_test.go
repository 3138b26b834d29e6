package limiter_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestNewArguments(t *testing.T) {
	t.Parallel()
	store, policy := memory.New(), limiter.PerSecond(1)
	for _, test := range []struct {
		what   string
		store  limiter.Store
		name   string
		opt    limiter.Option
		advice string
	}{
		{"no store", nil, "l", limiter.WithMaxWait(0), "memory.New()"},
		{"a nil pointer as the store", (*memory.Store)(nil), "l", limiter.WithMaxWait(0), "the store is nil (*memory.Store)"},
		{"no fallback", store, "l", limiter.FailLocal(nil), "memory.New()"},
		{"a nil pointer as the fallback", store, "l", limiter.FailLocal((*memory.Store)(nil)), "the fallback of FailLocal is nil (*memory.Store)"},
		{"no name", store, "", limiter.WithMaxWait(0), "must have 1 to 64"},
		{"a name of 65 bytes", store, strings.Repeat("n", 65), limiter.WithMaxWait(0), "must have 1 to 64"},
		{"a letter that is not ASCII", store, "ä", limiter.WithMaxWait(0), "it may have A-Z"},
		{"a nil option", store, "l", nil, "leave it out"},
		{"a nil clock", store, "l", limiter.WithClock(nil), "time.Now"},
		{"no secret", store, "l", limiter.WithKeyDigest(nil), "32 random bytes"},
		{"a nil observer", store, "l", limiter.WithObserver(nil), "leave the option out"},
		{"no time", store, "l", limiter.WithTimeout(0), "above 0, and 250ms is"},
		{"a deny cache of no keys", store, "l", limiter.WithDenyCache(0, 0), "it must be 1 to 1048576"},
		{"a deny cache of too many keys", store, "l", limiter.WithDenyCache(limiter.MaxDenySize+1, 0), "it must be 1 to"},
		{"a negative age", store, "l", limiter.WithDenyCache(1, -1), "up to 1h0m0s, and 0 means 1s"},
		{"an age that is too long", store, "l", limiter.WithDenyCache(1, limiter.MaxDenyAge+1), "0 means 1s"},
		{"no policy function", store, "l", limiter.WithPolicyFor(nil), "pass one"},
		{"a negative longest wait", store, "l", limiter.WithMaxWait(-1), "must be 0 to 1h0m0s"},
		{"a longest wait that is too long", store, "l", limiter.WithMaxWait(limiter.MaxReserve + 1), "must be 0 to"},
	} {
		l, err := limiter.New(test.store, test.name, policy, limiter.WithMaxWait(time.Second), test.opt)
		if !errors.Is(err, limiter.ErrInvalid) || l != nil || !strings.Contains(err.Error(), test.advice) {
			t.Errorf("%s: New = %v, %v, want ErrInvalid that says %q", test.what, l, err, test.advice)
		}
	}
	name := strings.Repeat("n", 64)
	l, err := limiter.New(store, name, policy, limiter.WithMaxWait(limiter.MaxReserve), limiter.WithMaxWait(0), limiter.WithTimeout(1),
		limiter.WithDenyCache(limiter.MaxDenySize, limiter.MaxDenyAge))
	must(t, err)
	if l.Name() != name || l.Policy() != limiter.Policy(policy) {
		t.Errorf("Name %q, Policy %+v, want what New was given", l.Name(), l.Policy())
	}
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)

// FuzzName checks that a limiter's name is one of those that the documentation allows,
// and that what is said of another can be printed anywhere: names stand in headers,
// problem documents and errors.
func FuzzName(f *testing.F) {
	for _, seed := range []string{
		"", "login", "a.b_c:d/e-f", strings.Repeat("x", 64), strings.Repeat("x", 65), "x\r\nSet-Cookie: a=b", "[", "{", "é", "\xff", "a b", "'; DROP TABLE x--", "a\x00", "\"", "a\u2028b",
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
			testenv.Equal(t, l.Name() == name, true, fmt.Sprintf("the name %q of New(%q)", l.Name(), name))
			return
		}
		testenv.ErrorIs(t, err, limiter.ErrInvalid, fmt.Sprintf("New(%q)", name))
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return r > unicode.MaxASCII || unicode.IsControl(r) }) {
			t.Errorf("the error has what cannot be printed: %q", err)
		}
	})
}

func TestWithKeyDigestCopiesTheSecret(t *testing.T) {
	t.Parallel()
	store, secret := memory.New(), []byte("secret")
	a := newLimiter(t, store, limiter.PerDay(1), limiter.WithKeyDigest(secret))
	mustAllow(t, a, true)
	b := newLimiter(t, store, limiter.PerDay(1), limiter.WithKeyDigest([]byte("secret")))
	clear(secret)
	mustAllow(t, a, false)
	mustAllow(t, b, false)
}

func TestWaitsAreRoundedUpToTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy limiter.Policy
		want   time.Duration
	}{
		{limiter.PerSecond(3), 333_334_000}, // a step is 333,333,334 ns
		{limiter.PerSecond(1), time.Second}, // a multiple stays
		{limiter.FixedWindow{Limit: 1, Window: time.Hour}, time.Hour},
	} {
		l := newLimiter(t, oneRow(1000), test.policy)
		n := limitOf(test.policy)
		if r, err := l.AllowN(t.Context(), "k", n); err != nil || !r.Allowed || r.ResetAfter%1000 != 0 {
			t.Errorf("%+v: AllowN(%d) = %+v, %v, want it to pass, ResetAfter in µs", test.policy, n, r, err)
		}
		if r, err := l.Allow(t.Context(), "k"); err != nil || r.Allowed || r.RetryAfter != test.want {
			t.Errorf("%+v: Allow = %+v, %v, want RetryAfter %v", test.policy, r, err, test.want)
		}
	}
	for wait, want := range map[int64]time.Duration{0: time.Microsecond, 2001: 2002, 2002: 2002} {
		for _, policy := range samples {
			l := newLimiter(t, refusing(limiter.State{Now: start, Tick: 2, Wait: wait}), policy)
			if r, err := l.Allow(t.Context(), "k"); err != nil || r.Allowed || r.RetryAfter != want {
				t.Errorf("a state with a Wait of %d: %+v, %v, want RetryAfter %v", wait, r, err, want)
			}
		}
	}
}

func TestRowExpired(t *testing.T) {
	t.Parallel()
	const end = start
	for _, test := range []struct {
		what string
		row  limiter.Row
	}{
		{"a bucket", limiter.Row{FullAt: end, At: end - 100, Period: 10, Limit: 10}},
		{"a bucket that was refunded", limiter.Row{FullAt: end - 1000, At: end, Period: 10, Limit: 10}},
		{"a window", limiter.Row{Start: end - 10_000, Used: 1, At: end - 5000, Period: 10_000, Limit: 10}},
		{"a window that counts refusals", limiter.Row{Start: end - 10_000, Used: 1 << 62, At: end - 5000, Period: 10_000, Limit: 10}},
		{"a booked window that was canceled", limiter.Row{Start: end - 10_000, At: end - 50_000, Period: 10_000, Limit: 10}},
		{"a window that was written late", limiter.Row{Start: end - 20_000, Used: 1, At: end, Period: 10_000, Limit: 10}},
		{"a window that lies ahead of its take", limiter.Row{Start: end - 10_000, Used: 1, At: end - 50_000, Period: 10_000, Limit: 10}},
	} {
		for offset, want := range map[time.Duration]bool{0: false, limiter.SweepGrace - 1: false, limiter.SweepGrace: true, 1e18: true} {
			testenv.Equal(t, test.row.Expired(end+int64(offset)), want, test.what, offset, "after its end")
		}
	}
	const day = int64(24 * time.Hour)
	first := limiter.Row{Used: 1, At: 1, Period: day, Limit: 10} // on the first day of time
	if now := day + int64(limiter.SweepGrace); first.Expired(now-1) || !first.Expired(now) {
		t.Errorf("%+v: Expired a nanosecond before %d %v, and then %v", first, now, first.Expired(now-1), first.Expired(now))
	}
	given := limiter.Row{At: 1, Period: day, Limit: 10}
	if !(limiter.Row{}).Expired(start) || !(limiter.Row{Period: 10, Limit: 10}).Expired(start) || !given.Expired(1+int64(limiter.SweepGrace)) {
		t.Error("the zero Row, or that of a key that was reset or got all back, is not expired")
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	berlin, tokyo := zone(t, "Europe/Berlin"), zone(t, "Asia/Tokyo")
	for want, v := range map[string]fmt.Stringer{
		"none": limiter.Source(0), "store": limiter.SourceStore, "deny_cache": limiter.SourceDenyCache,
		"local": limiter.SourceLocal, "policy": limiter.SourcePolicy, "source(99)": limiter.Source(99),

		"operation(0)": limiter.OpKind(0), "take": limiter.OpTake, "look": limiter.OpLook, "refund": limiter.OpRefund,
		"cancel": limiter.OpCancel, "reset": limiter.OpReset, "take_up_to": limiter.OpTakeUpTo, "charge": limiter.OpCharge,
		"block": limiter.OpBlock, "acquire": limiter.OpAcquire, "release": limiter.OpRelease, "extend": limiter.OpExtend,
		"operation(12)": limiter.OpKind(12),

		"5 per 1s, burst 5":                        limiter.PerSecond(5),
		"5 per 1m0s, burst 5":                      limiter.PerMinute(5),
		"5 per 1h0m0s, burst 5":                    limiter.PerHour(5),
		"5 per 24h0m0s, burst 5":                   limiter.PerDay(5),
		"1 per 10s, burst 100":                     limiter.TokenBucket{Capacity: 100, Refill: 1, Interval: 10 * time.Second},
		"100 per 1h0m0s window":                    limiter.FixedWindow{Limit: 100, Window: time.Hour},
		"100 per 1h0m0s window, counting refusals": limiter.FixedWindow{Limit: 100, Window: time.Hour, CountRejected: true},
		"2 in flight, 1m0s each":                   places,

		"3 per day (UTC)":                         limiter.CalendarWindow{Limit: 3, Period: limiter.Day},
		"1 per week (Europe/Berlin)":              limiter.CalendarWindow{Limit: 1, Period: limiter.Week, Location: berlin},
		"9 per month (UTC)":                       limiter.CalendarWindow{Limit: 9, Period: limiter.Month, StartDay: 1, Location: time.UTC},
		"2000 per month from day 31 (Asia/Tokyo)": limiter.CalendarWindow{Limit: 2000, Period: limiter.Month, StartDay: 31, Location: tokyo},
		"1 per month from day 2 (UTC)":            limiter.CalendarWindow{Limit: 1, Period: limiter.Month, StartDay: 2},
		"1 per year (UTC)":                        limiter.CalendarWindow{Limit: 1, Period: limiter.Year},
		"1 per period(9) (UTC)":                   limiter.CalendarWindow{Limit: 1, Period: 9},
	} {
		testenv.Equal(t, v.String(), want, fmt.Sprintf("%#v", v))
	}
}

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
				must(t, testenv.ErrorOf(l.Allow(t.Context(), key)))
			}
			got, err := limiter.StoredKey(key, secret)
			if err != nil || got != store.ops[0].Key || got != store.ops[1].Key {
				t.Errorf("StoredKey(%q, %q) = %q, %v; the store got %q and %q", key, secret, got, err, store.ops[0].Key, store.ops[1].Key)
			}
			sum := sha256.Sum256([]byte(key))
			if asIs := plain && secret == nil; (got == key) != asIs || !asIs && (len(got) != 33 || got[0] != 0 || (got[1:] == string(sum[:])) != (secret == nil)) {
				t.Errorf("StoredKey(%q, %q) = %q, want it stored as it is: %v", key, secret, got, asIs)
			}
		}
	}
	if got, err := limiter.StoredKey("k", []byte{}); !errors.Is(err, limiter.ErrInvalid) || got != "" {
		t.Errorf("StoredKey with an empty secret = %q, %v; want ErrInvalid", got, err)
	}
}

func TestStoredKeyOfAShortKeyIsFree(t *testing.T) {
	testenv.Equal(t, testing.AllocsPerRun(100, func() { _, _ = limiter.StoredKey("customer", nil) }), 0, "allocations")
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
		testenv.Equal(t, sa == sb, a == b, fmt.Sprintf("%q is stored as %q, %q as %q", a, sa, b, sb))
		if len(sa) < 1 || len(sa) > 255 {
			t.Errorf("%q is stored in %d bytes, want 1 to 255", a, len(sa))
		}
		for _, other := range [][]byte{nil, []byte(secret + "x")} {
			if stored, _ := limiter.StoredKey(a, other); mac != nil && sa == stored {
				t.Errorf("%q is stored alike with the secret %q and with %q", a, mac, other)
			}
		}
	})
}

// observed collects decisions without their durations.
type observed []limiter.Decision

func (o *observed) option() limiter.Option {
	return limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		if d.Duration < 0 || d.Duration > time.Minute {
			panic(d.Duration)
		}
		d.Duration = 0
		*o = append(*o, d)
	})
}

// Each operation is observed once. A decision, charge or block asks for its policy once, with the key of the
// request.
func TestObserverSeesEveryOperation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	gone, leave := context.WithCancel(ctx)
	leave()
	var seen observed
	p := &plans{}
	l := newLimiter(t, memory.New(), limiter.PerSecond(3), seen.option(), p.option(), fixed(), limiter.WithKeyDigest([]byte("secret")))
	var res limiter.Result
	var booked *limiter.Reservation
	call := func(r limiter.Result, err error) error {
		res = r
		return err
	}
	reserve := func(n int64) (err error) {
		booked, err = l.Reserve(ctx, "k", n, time.Second)
		return call(booked.Result, err)
	}
	wait := func(n int64) error {
		err := l.WaitN(ctx, "k", n)
		res = seen[0].Result // which the caller does not get
		return err
	}
	for _, c := range []struct {
		what string
		asks int // for the policy
		do   func() error
		want limiter.Decision // the zero Decision if nothing is sent
	}{
		{"Allow", 1, func() error { return call(l.AllowN(ctx, "k", 2)) }, limiter.Decision{Op: limiter.OpTake, Cost: 2}},
		{"RefundOf", 0, func() error { return testenv.ErrorOf(l.RefundOf(ctx, "k", 1, res)) }, limiter.Decision{Op: limiter.OpRefund, Cost: 1, Changed: true}},
		{"a refusal", 1, func() error { return call(l.AllowN(ctx, "k", 3)) }, limiter.Decision{Op: limiter.OpTake, Cost: 3}},
		{"Peek", 1, func() error { return call(l.Peek(ctx, "k")) }, limiter.Decision{Op: limiter.OpLook, Cost: 1}},
		{"AllowN(0)", 1, func() error { return call(l.AllowN(ctx, "k", 0)) }, limiter.Decision{Op: limiter.OpLook}},
		{"Reserve(0)", 1, func() error { return reserve(0) }, limiter.Decision{Op: limiter.OpLook}},
		{"Cancel of nothing", 0, func() error { return booked.Cancel(ctx) }, limiter.Decision{}},
		{"Refund", 0, func() error { return testenv.ErrorOf(l.Refund(ctx, "k", 1)) }, limiter.Decision{Op: limiter.OpRefund, Cost: 1, Changed: true}},
		{"Refund to an unused key", 0, func() error { return testenv.ErrorOf(l.Refund(ctx, "x", 1)) }, limiter.Decision{Op: limiter.OpRefund, Cost: 1}},
		{"Wait", 1, func() error { return wait(1) }, limiter.Decision{Op: limiter.OpTake, Cost: 1, MaxWait: limiter.MaxReserve}},
		{"AllowUpTo", 1, func() error { return call(l.AllowUpTo(ctx, "k", 9)) }, limiter.Decision{Op: limiter.OpTakeUpTo, Cost: 9}},
		{"Reserve", 1, func() error { return reserve(1) }, limiter.Decision{Op: limiter.OpTake, Cost: 1, MaxWait: time.Second}},
		{"Cancel", 0, func() error { return booked.Cancel(ctx) }, limiter.Decision{Op: limiter.OpCancel, Cost: 1, Changed: true}},
		{"Cancel again", 0, func() error { return booked.Cancel(ctx) }, limiter.Decision{}},
		{"Charge", 1, func() error { return call(l.Charge(ctx, "k", 7)) }, limiter.Decision{Op: limiter.OpCharge, Cost: 7}},
		{"Charge(0)", 1, func() error { return call(l.Charge(ctx, "k", 0)) }, limiter.Decision{Op: limiter.OpLook, Cost: 1}},
		{"Block", 1, func() error { return l.Block(ctx, "k", time.Hour) }, limiter.Decision{Op: limiter.OpBlock, Changed: true}},
		{"Reset", 0, func() error { return l.Reset(ctx, "k") }, limiter.Decision{Op: limiter.OpReset, Changed: true}},
		{"Reset of an unused key", 0, func() error { return l.Reset(ctx, "x") }, limiter.Decision{Op: limiter.OpReset}},
		{"AllowAll", 1, func() error {
			all, err := limiter.AllowAll(ctx, claims(l)...)
			return call(all.Each[0], err)
		}, limiter.Decision{Op: limiter.OpTake, Cost: 1}},
		{"Allow without a key", 0, func() error { return testenv.ErrorOf(l.Allow(ctx, "")) }, limiter.Decision{}},
		{"Allow by a caller who has left", 0, func() error { return testenv.ErrorOf(l.Allow(gone, "k")) }, limiter.Decision{}},
		{"Reset by a caller who has left", 0, func() error { return l.Reset(gone, "k") }, limiter.Decision{}},
		{"AllowAll by a caller who has left", 0, func() error { return testenv.ErrorOf(limiter.AllowAll(gone, claims(l)...)) }, limiter.Decision{}},
	} {
		seen, *p = nil, plans{key: "k"}
		err := c.do()
		if p.calls != c.asks || p.key != "k" {
			t.Errorf("%s: %v, asked %d times for the policy of %q, want %d", c.what, err, p.calls, p.key, c.asks)
		}
		if c.want == (limiter.Decision{}) {
			testenv.Equal(t, len(seen), 0, c.what, err, "the observer saw", seen)
			continue
		}
		c.want.Limiter = "l"
		switch c.want.Op {
		case limiter.OpRefund, limiter.OpCancel, limiter.OpBlock, limiter.OpReset:
			c.want.Result = limiter.Result{Allowed: true, Source: limiter.SourceStore}
		default:
			c.want.Result = res
		}
		if err != nil || len(seen) != 1 || seen[0] != c.want {
			t.Errorf("%s: %v, the observer saw\n     %+v\nwant %+v", c.what, err, seen, c.want)
		}
	}
}
