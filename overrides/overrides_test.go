package overrides_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/sqlite"
)

var must = testenv.Must

func TestMain(m *testing.M) { dbtest.Main(m) }

const age = 10 * time.Second // the default MaxAge

// fakeSource is a source that the test controls.
type fakeSource struct {
	mu    sync.Mutex
	list  []limiter.Override
	err   error
	takes time.Duration // how long a read takes, unless its context ends first
	reads int
	limit int // of the latest read
}

func (s *fakeSource) Overrides(ctx context.Context, name string, limit int) ([]limiter.Override, error) {
	s.mu.Lock()
	list, err, takes := s.list, s.err, s.takes
	s.reads++
	s.limit = limit
	s.mu.Unlock()
	if name != "api" {
		return nil, fmt.Errorf("the limiter is %q", name)
	}
	select {
	case <-time.After(takes):
		return list, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// set sets the only override: of "k", with this capacity. The next reads take this long.
func (s *fakeSource) set(capacity int64, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.takes = []limiter.Override{{Key: "k", Policy: limiter.PerMinute(capacity)}}, takes
}

// newSource returns a source with an override of "k" by 5 a minute.
func newSource(takes time.Duration) *fakeSource {
	s := &fakeSource{}
	s.set(5, takes)
	return s
}

func (s *fakeSource) wantReads(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	testenv.Equal(t, s.reads, want, "reads")
}

type policyFor = func(context.Context, string) (limiter.Policy, error)

// want fails the test unless the key has an override with this capacity. 0 means none.
func want(t *testing.T, f policyFor, key string, capacity int64) {
	t.Helper()
	var policy limiter.Policy
	if capacity > 0 {
		policy = limiter.PerMinute(capacity)
	}
	if got, err := f(t.Context(), key); err != nil || got != policy {
		t.Errorf("the policy of %q is %+v, %v; want %+v", key, got, err, policy)
	}
}

// withOverrides returns a limiter in memory of 1 a minute.
func withOverrides(t *testing.T, f policyFor, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(memory.New(), "api", limiter.PerMinute(1), append(opts, limiter.WithPolicyFor(f))...)
	must(t, err)
	return l
}

// collect returns an option that appends what OnError gets.
func collect(errs *[]error) overrides.Option {
	return overrides.OnError(func(err error) { *errs = append(*errs, err) })
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		wall, monotonic time.Duration // what the clocks advance
		reads           int
	}{
		{"a copy of ten seconds is read again", age, age, 2},
		{"a younger copy is not", age - 1, age - 1, 1},
		{"a frozen process", age, 0, 2},
		{"a wall clock that was stepped back", -time.Hour, age, 2},
		{"a wall clock that was stepped back, too early", -time.Hour, age - 1, 1},
	} {
		for option, opts := range map[string][]overrides.Option{"set": {overrides.MaxAge(age)}, "default": nil} {
			source, wall, monotonic := &fakeSource{}, time.Unix(1_800_000_000, 0), time.Duration(0)
			f := overrides.New(source, "api", append(opts, overrides.WithClocks(
				func() time.Time { return wall }, func() time.Duration { return monotonic }))...)
			want(t, f, "k", 0)
			source.set(5, 0)
			wall, monotonic = wall.Add(c.wall), c.monotonic
			want(t, f, "k", int64(c.reads-1)*5)
			want(t, f, "other", 0)
			testenv.Equal(t, source.reads, c.reads, c.name, "MaxAge by", option, "reads")
		}
	}
}

func TestOverrideEndsWithoutARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newSource(0)
		source.list[0].ExpiresAt = time.Now().Add(time.Second)
		f := overrides.New(source, "api", overrides.MaxAge(time.Hour))
		want(t, f, "k", 5)
		<-time.After(time.Second - 1)
		want(t, f, "k", 5)
		<-time.After(1)
		want(t, f, "k", 0)
		source.wantReads(t, 1)
		source.list[0].ExpiresAt = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		want(t, overrides.New(source, "api"), "k", 5)
	})
}

func TestFailedRead(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	list := []limiter.Override{{Key: "k", Policy: limiter.PerMinute(5)}}
	synctest.Test(t, func(t *testing.T) {
		source, errs := &fakeSource{}, []error{}
		var f policyFor
		f = overrides.New(source, "api", overrides.OnError(func(err error) {
			errs = append(errs, err)
			_, _ = f(t.Context(), "k") // asking again waits for nothing
		}))
		for i, read := range []struct {
			list     []limiter.Override
			err      error
			capacity int64
			errs     int
		}{
			{nil, down, 0, 1}, // there is no copy yet
			{list, nil, 5, 1},
			{nil, down, 5, 2},
			{nil, down, 5, 3},
			{nil, nil, 0, 3},
		} {
			source.list, source.err = read.list, read.err
			want(t, f, "k", read.capacity)
			want(t, f, "k", read.capacity)
			source.wantReads(t, i+1)
			testenv.Equal(t, len(errs), read.errs, "OnError got", errs)
			<-time.After(age)
		}
		for _, err := range errs {
			testenv.ErrorIs(t, err, down, "OnError")
			testenv.Contains(t, err.Error(), `limiter "api"`)
		}
	})
}

func TestMostOverrides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, errs := &fakeSource{}, []error{}
		add := func(n int) {
			for range n {
				i := len(source.list)
				source.list = append(source.list, limiter.Override{Key: fmt.Sprint(i), Policy: limiter.PerMinute(int64(i + 1))})
			}
		}
		add(10_000)
		f := overrides.New(source, "api", collect(&errs))
		want(t, f, "9999", 10_000)
		testenv.Equal(t, len(errs), 0, errs, "errors")
		testenv.Equal(t, source.limit, 10_001, "the limit")
		add(1)
		<-time.After(age)
		want(t, f, "9999", 10_000)
		want(t, f, "10000", 0)
		if len(errs) != 1 || !errors.Is(errs[0], limiter.ErrMisconfigured) || !strings.Contains(errs[0].Error(), "10000 overrides") {
			t.Errorf("OnError got %v, want ErrMisconfigured with the number", errs)
		}
	})
}

func TestStoredKeys(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret")
	for _, key := range []string{"k", strings.Repeat("k", 1000), "\x00"} {
		plain, err := limiter.StoredKey(key, nil)
		must(t, err)
		digest, err := limiter.StoredKey(key, secret)
		must(t, err)
		source := &fakeSource{list: []limiter.Override{{Key: plain, Policy: limiter.PerMinute(5)}, {Key: digest, Policy: limiter.PerMinute(6)}}}
		for n, l := range map[int64]*limiter.Limiter{
			5: withOverrides(t, overrides.New(source, "api")),
			6: withOverrides(t, overrides.New(source, "api", overrides.WithKeyDigest(secret)), limiter.WithKeyDigest(secret)),
		} {
			if r, err := l.AllowN(t.Context(), key, n); err != nil || !r.Allowed || r.Policy != limiter.Policy(limiter.PerMinute(n)) {
				t.Errorf("AllowN with the override: %+v, %v; want it allowed", r, err)
			}
			testenv.ErrorIs(t, testenv.ErrorOf(l.AllowN(t.Context(), key+"x", n)), limiter.ErrExceedsCapacity, "AllowN without an override")
		}
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	source := &fakeSource{}
	for name, f := range map[string]policyFor{
		"no source":          overrides.New(nil, "api"),
		"a typed nil source": overrides.New((*fakeSource)(nil), "api"),
		"a wrong name":       overrides.New(source, "a name"),
		"MaxAge of 0":        overrides.New(source, "api", overrides.MaxAge(0)),
		"no secret":          overrides.New(source, "api", overrides.WithKeyDigest(nil)),
		"no OnError":         overrides.New(source, "api", overrides.OnError(nil)),
	} {
		r, err := withOverrides(t, f, limiter.FailOpen()).Allow(t.Context(), "k")
		if !errors.Is(err, limiter.ErrInvalid) || !errors.Is(err, limiter.ErrNoPolicy) || r.Allowed {
			t.Errorf("%s: %+v, %v; want a refusal with ErrInvalid", name, r, err)
		}
	}
	source.wantReads(t, 0)
	testenv.Panics(t, "option 0 of New is nil", func() { overrides.New(source, "api", nil) })
}

// Not in parallel, because the default logger is a variable.
func TestFailuresAreLogged(t *testing.T) {
	store, err := sqlite.Open(":memory:") // without tables
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	text := testenv.Logged(t)
	f := overrides.New(store, "api")
	for range 5 {
		want(t, f, "secret-key", 0)
	}
	if n := strings.Count(text.String(), "limiter: misconfigured: the tables are missing, or differ from those of migration 1"); n != 1 || strings.Contains(text.String(), "secret-key") {
		t.Errorf("the log has %d errors, want 1 without the key:\n%s", n, text)
	}
}

func TestAllocations(t *testing.T) {
	f := overrides.New(newSource(0), "api")
	for _, key := range []string{"k", "other"} {
		testenv.Equal(t, testing.AllocsPerRun(1000, func() { _, _ = f(t.Context(), key) }), 0, "allocations of", key)
	}
}

func TestBase(t *testing.T) {
	t.Parallel()
	month := limiter.CalendarWindow{Limit: 100, Period: limiter.Month, StartDay: 1, Location: time.UTC}
	window := limiter.FixedWindow{Limit: 100, Window: time.Hour, CountRejected: true}
	own := limiter.PerMinute(3)
	source := &fakeSource{list: []limiter.Override{
		{Key: "more", Limit: 900},
		{Key: "over", Limit: 5, ExpiresAt: time.Now()},
		{Key: "below", Limit: -1},
		{Key: "above", Limit: math.MaxInt64},
		{Key: "policy", Policy: own},
	}}
	for name, c := range map[string]struct {
		base, more limiter.Policy
		says       string
	}{
		"calendar":  {month, limiter.CalendarWindow{Limit: 900, Period: limiter.Month}, "must be 1 to 2^60"},
		"window":    {window, limiter.FixedWindow{Limit: 900, Window: time.Hour, CountRejected: true}, "must be 1 to 2^60"},
		"sliding":   {limiter.SlidingWindow{Limit: 100, Window: time.Hour}, limiter.SlidingWindow{Limit: 900, Window: time.Hour}, "must be 1 to 2^60"},
		"in flight": {limiter.InFlight{Limit: 10, Hold: time.Minute}, limiter.InFlight{Limit: 900, Hold: time.Minute}, "must be 1 to 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []error
			f := overrides.New(source, "api", overrides.Base(c.base), collect(&seen))
			for key, want := range map[string]limiter.Policy{"more": c.more, "over": nil, "none": nil, "policy": own} {
				if got, err := f(t.Context(), key); err != nil || got != want {
					t.Errorf("%s: %v, %v; want %v", key, got, err, want)
				}
			}
			for _, key := range []string{"below", "above"} {
				if got, err := f(t.Context(), key); !errors.Is(err, limiter.ErrInvalid) || got != nil {
					t.Errorf("%s: %v, %v; want ErrInvalid", key, got, err)
				}
			}
			if len(seen) != 1 || !errors.Is(seen[0], limiter.ErrInvalid) || !strings.Contains(seen[0].Error(), c.says) {
				t.Errorf("OnError got %v, want ErrInvalid once", seen)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		calls := 0
		f := overrides.New(source, "api", overrides.OnError(func(error) { calls++ }))
		for range 2 {
			if got, err := f(t.Context(), "more"); !errors.Is(err, limiter.ErrInvalid) || got != nil || !strings.Contains(err.Error(), "pass Base") {
				t.Errorf("%v, %v; want ErrInvalid that says what to pass", got, err)
			}
		}
		want(t, f, "policy", own.Capacity)
		testenv.Equal(t, calls, 1, "calls of OnError")
	})
	t.Run("of another kind", func(t *testing.T) {
		t.Parallel()
		for _, base := range []limiter.Policy{nil, own, &month, limiter.FixedWindow{}, limiter.InFlight{}} {
			_, err := overrides.New(source, "api", overrides.Base(base))(t.Context(), "k")
			testenv.ErrorIs(t, err, limiter.ErrInvalid, base)
		}
	})
}
