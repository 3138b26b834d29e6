package overrides_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/sqlite"
)

func TestMaxAge(t *testing.T) {
	t.Parallel()
	const age = 10 * time.Second
	for _, c := range []struct {
		name            string
		wall, monotonic time.Duration // what the clocks advance
		again           bool          // whether the table is read again
	}{
		{"a copy of ten seconds is read again", age, age, true},
		{"a younger copy is not", age - 1, age - 1, false},
		{"a frozen process", age, 0, true},
		{"a wall clock that was stepped back", -time.Hour, age, true},
		{"a wall clock that was stepped back, too early", -time.Hour, age - 1, false},
	} {
		for option, opts := range map[string][]overrides.Option{"set": {overrides.MaxAge(age)}, "default": nil} {
			source, clock := &fakeSource{}, newClocks()
			f := overrides.New(source, "api", append(opts, clock.option())...)
			want(t, f, "k", 0)
			source.set("k", 5)
			clock.move(c.wall, c.monotonic)
			want(t, f, "k", map[bool]int64{true: 5, false: 0}[c.again])
			want(t, f, "other", 0)
			if n, reads := source.count(), map[bool]int{true: 2, false: 1}[c.again]; n != reads {
				t.Errorf("%s, MaxAge by %s: %d reads, want %d", c.name, option, n, reads)
			}
		}
	}
	t.Run("an override ends although the copy is younger", func(t *testing.T) {
		t.Parallel()
		source, clock := &fakeSource{}, newClocks()
		source.list = []limiter.Override{{Key: "k", Policy: limiter.PerMinute(5), ExpiresAt: clock.wall.Add(time.Second)}}
		f := overrides.New(source, "api", overrides.MaxAge(time.Hour), clock.option())
		want(t, f, "k", 5)
		clock.advance(time.Second - 1)
		want(t, f, "k", 5)
		clock.advance(1)
		want(t, f, "k", 0)
		if n := source.count(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
	})
}

func TestFailedRead(t *testing.T) {
	t.Parallel()
	source, clock, seen := &fakeSource{}, newClocks(), &reported{}
	down := errors.New("down")
	source.err = down
	f := overrides.New(source, "api", overrides.MaxAge(10*time.Second), clock.option(), seen.option())
	expect := func(change func(), key string, capacity int64, reads, errs int) {
		t.Helper()
		source.change(change)
		want(t, f, key, capacity)
		want(t, f, key, capacity)
		if source.count() != reads || len(seen.errs) != errs {
			t.Errorf("%d reads and %d errors, want %d and %d", source.count(), len(seen.errs), reads, errs)
		}
		clock.advance(10 * time.Second)
	}
	list := []limiter.Override{{Key: "k", Policy: limiter.PerMinute(5)}}
	expect(func() {}, "k", 0, 1, 1) // there is no copy yet
	expect(func() { source.list, source.err = list, nil }, "k", 5, 2, 1)
	expect(func() { source.list, source.err = nil, down }, "k", 5, 3, 2)
	expect(func() {}, "k", 5, 4, 3)
	expect(func() { source.err = nil }, "k", 0, 5, 3)
	for _, err := range seen.errs {
		if !errors.Is(err, down) || !strings.Contains(err.Error(), `limiter "api"`) {
			t.Errorf("OnError got %v, want the source's error and the limiter's name", err)
		}
	}
}

func TestReadEndsAfterOneSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, seen := &fakeSource{}, &reported{}
		source.set("k", 5)
		f := overrides.New(source, "api", overrides.MaxAge(10*time.Second), seen.option())
		want(t, f, "k", 5)
		<-time.After(10 * time.Second)
		source.change(func() { source.takes = time.Hour })
		began := time.Now()
		want(t, f, "k", 5)
		if d := time.Since(began); d != time.Second {
			t.Errorf("the read took %v, want 1 s", d)
		}
		if len(seen.errs) != 1 || !errors.Is(seen.errs[0], context.DeadlineExceeded) {
			t.Errorf("OnError got %v, want a timeout", seen.errs)
		}
		<-time.After(10*time.Second - 1)
		want(t, f, "k", 5)
		if n := source.count(); n != 2 {
			t.Errorf("%d reads, want no retry before MaxAge has passed since the failure", n)
		}
	})
}

// One caller reads. Without a copy the others wait for it, and otherwise they use the old one.
func TestOneCallerReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{takes: 500 * time.Millisecond}
		source.set("k", 5)
		f := overrides.New(source, "api")
		for range 64 {
			go want(t, f, "k", 5)
		}
		want(t, f, "k", 5)
		<-time.After(10 * time.Second)
		source.set("k", 7)
		go want(t, f, "k", 7)
		synctest.Wait()
		began := time.Now()
		for range 64 {
			want(t, f, "k", 5)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the others waited for %v, want no wait", d)
		}
		<-time.After(500 * time.Millisecond)
		synctest.Wait()
		want(t, f, "k", 7)
		if n := source.count(); n != 2 {
			t.Errorf("%d reads, want 2", n)
		}
	})
}

func TestMostOverrides(t *testing.T) {
	t.Parallel()
	source, clock, seen := &fakeSource{}, newClocks(), &reported{}
	add := func(n int) {
		for range n {
			source.list = append(source.list, limiter.Override{
				Key: fmt.Sprint(len(source.list)), Policy: limiter.PerMinute(int64(len(source.list) + 1)),
			})
		}
	}
	add(10_000)
	f := overrides.New(source, "api", overrides.MaxAge(10*time.Second), clock.option(), seen.option())
	want(t, f, "9999", 10_000)
	if len(seen.errs) != 0 || source.limit != 10_001 {
		t.Errorf("errors %v with a limit of %d, want none and 10,001", seen.errs, source.limit)
	}
	add(1)
	clock.advance(10 * time.Second)
	want(t, f, "9999", 10_000)
	want(t, f, "10000", 0)
	if len(seen.errs) != 1 || !errors.Is(seen.errs[0], limiter.ErrMisconfigured) || !strings.Contains(seen.errs[0].Error(), "10000 overrides") {
		t.Errorf("OnError got %v, want ErrMisconfigured with the number", seen.errs)
	}
}

func TestStoredKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 1000)
	for _, secret := range [][]byte{nil, []byte("a secret")} {
		for _, key := range []string{"k", long, "\x00"} {
			stored, err := limiter.StoredKey(key, secret)
			must(t, err)
			source := &fakeSource{}
			source.set(stored, 5)
			l := withOverrides(t, overrides.New(source, "api"))
			if secret != nil {
				l = withOverrides(t, overrides.New(source, "api", overrides.WithKeyDigest(secret)), limiter.WithKeyDigest(secret))
			}
			if r, err := l.AllowN(t.Context(), key, 5); err != nil || !r.Allowed || r.Policy != limiter.Policy(limiter.PerMinute(5)) {
				t.Errorf("AllowN with the override: %+v, %v; want it allowed", r, err)
			}
			if _, err := l.AllowN(t.Context(), key+"x", 5); !errors.Is(err, limiter.ErrExceedsCapacity) {
				t.Errorf("AllowN without an override: %v, want ErrExceedsCapacity", err)
			}
		}
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	source := &fakeSource{}
	for name, f := range map[string]policyFor{
		"no source":          overrides.New(nil, "api"),
		"a typed nil source": overrides.New((*fakeSource)(nil), "api"),
		"no name":            overrides.New(source, ""),
		"MaxAge of 0":        overrides.New(source, "api", overrides.MaxAge(0)),
		"a negative MaxAge":  overrides.New(source, "api", overrides.MaxAge(-1)),
		"no secret":          overrides.New(source, "api", overrides.WithKeyDigest(nil)),
		"no OnError":         overrides.New(source, "api", overrides.OnError(nil)),
	} {
		r, err := withOverrides(t, f, limiter.FailOpen()).Allow(t.Context(), "k")
		if !errors.Is(err, limiter.ErrInvalid) || !errors.Is(err, limiter.ErrNoPolicy) || r.Allowed {
			t.Errorf("%s: %+v, %v; want a refusal with ErrInvalid", name, r, err)
		}
	}
	if n := source.count(); n != 0 {
		t.Errorf("%d reads, want none", n)
	}
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "option 0 of New is nil") {
			t.Errorf("New with a nil option: panic %q", text)
		}
	}()
	overrides.New(source, "api", nil)
}

func TestOverrideOfTheOtherKind(t *testing.T) {
	t.Parallel()
	source := &fakeSource{list: []limiter.Override{{Key: "k", Policy: limiter.FixedWindow{Limit: 1, Window: time.Hour}}}}
	l := withOverrides(t, overrides.New(source, "api"))
	if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("Allow: %v, want ErrInvalid", err)
	}
	if r, err := l.Allow(t.Context(), "other"); err != nil || !r.Allowed {
		t.Errorf("Allow of another key: %+v, %v; want it allowed", r, err)
	}
}

// Not in parallel, because the default logger is a variable.
func TestFailuresAreLogged(t *testing.T) {
	store, err := sqlite.Open(":memory:") // without tables
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	clock := newClocks()
	f := overrides.New(store, "api", overrides.MaxAge(10*time.Second), clock.option())
	for range 2 {
		for range 5 {
			want(t, f, "secret-key", 0)
		}
		clock.advance(10 * time.Second)
	}
	if n := strings.Count(text.String(), "limiter: misconfigured: the tables are missing, or differ from those of migration 1"); n != 2 || strings.Contains(text.String(), "secret-key") {
		t.Errorf("the log has %d errors, want 2 without the key:\n%s", n, &text)
	}
}

func TestOnErrorMayAskAgain(t *testing.T) {
	t.Parallel()
	source := &fakeSource{err: errors.New("down")}
	var f policyFor
	var calls atomic.Int64
	f = overrides.New(source, "api", overrides.OnError(func(error) {
		calls.Add(1)
		want(t, f, "k", 0)
	}))
	want(t, f, "k", 0)
	if n := calls.Load(); n != 1 {
		t.Errorf("OnError was called %d times, want once", n)
	}
}

func TestAllocations(t *testing.T) {
	source := &fakeSource{}
	source.set("k", 5)
	f := overrides.New(source, "api")
	for _, key := range []string{"k", "other"} {
		if n := testing.AllocsPerRun(1000, func() { _, _ = f(t.Context(), key) }); n != 0 {
			t.Errorf("%q costs %v allocations, want none", key, n)
		}
	}
}

func BenchmarkPolicyFor(b *testing.B) {
	source := &fakeSource{}
	for i := range 10_000 {
		source.list = append(source.list, limiter.Override{Key: fmt.Sprintf("customer-%d", i), Policy: limiter.PerMinute(5)})
	}
	secret := []byte("a secret")
	for name, f := range map[string]policyFor{
		"plain":  overrides.New(source, "api"),
		"digest": overrides.New(source, "api", overrides.WithKeyDigest(secret)),
		"none":   overrides.New(&fakeSource{}, "api"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(b.Context(), "customer-77"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
