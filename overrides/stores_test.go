package overrides_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// TestStores runs the same tests on both SQL stores. In PostgreSQL the tables are in a schema of their own.
func TestStores(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(":memory:")
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
		testKinds(t, store.DB(), store)
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		t.Parallel()
		dsn := server.Database(t)
		db, err := sql.Open("pgx", dsn+"&search_path=limits")
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		must(t, testenv.ErrorOf(db.ExecContext(t.Context(), "CREATE SCHEMA limits")))
		must(t, migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema("limits")))
		store, err := postgres.Open(dsn, postgres.WithSchema("limits"))
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		testKinds(t, db, store)
	})
}

func testKinds(t *testing.T, db *sql.DB, store overrides.Source) {
	soon := time.Unix(time.Now().Unix()+60, 0)
	_, err := db.ExecContext(t.Context(), `INSERT INTO limiter_overrides
		(limiter, key, kind, capacity, refill, period, note, expires_at) VALUES
		('kinds', $1, 'bucket', 5, 4, 3000000000, NULL, NULL),
		('kinds', $2, 'window', 5, NULL, 3000000000, 'by Ann', $6),
		('kinds', $3, 'window_counting', 5, NULL, 3000000000, '', NULL),
		('kinds', $4, 'bucket', 5, 4, 3000000000, NULL, 1000000000000000000), -- expired
		('kinds', $5, 'sliding', 5, NULL, 3000000000, NULL, NULL),
		('others', $1, 'bucket', 5, 4, 3000000000, NULL, NULL)`,
		[]byte{0, 0xff}, []byte("b"), []byte("ä"), []byte("a"), []byte("s"), soon.UnixNano())
	must(t, err)
	want := []limiter.Override{
		{Key: "\x00\xff", Policy: limiter.TokenBucket{Capacity: 5, Refill: 4, Interval: 3 * time.Second}},
		{Key: "b", Policy: limiter.FixedWindow{Limit: 5, Window: 3 * time.Second}, Note: "by Ann", ExpiresAt: soon},
		{Key: "s", Policy: limiter.SlidingWindow{Limit: 5, Window: 3 * time.Second}},
		{Key: "ä", Policy: limiter.FixedWindow{Limit: 5, Window: 3 * time.Second, CountRejected: true}},
	}
	for limit := 1; limit <= 5; limit++ {
		got, err := store.Overrides(t.Context(), "kinds", limit)
		if n := min(limit, len(want)); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want[:n]) {
			t.Errorf("at most %d overrides: %+v, %v; want %+v", limit, got, err, want[:n])
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Overrides(ended, "kinds", 10)
	testenv.ErrorIs(t, err, limiter.ErrCanceled, "with a context that has ended")
}

// panicking is a source with a bug.
type panicking struct{}

func (panicking) Overrides(context.Context, string, int) ([]limiter.Override, error) { panic("bug") }

// wantTook fails the test unless this time has passed.
func wantTook(t *testing.T, began time.Time, want time.Duration) {
	t.Helper()
	testenv.Equal(t, time.Since(began), want, "it took")
}

func TestWaitForRead(t *testing.T) {
	t.Parallel()
	const deadline = 50 * time.Millisecond
	// leave asks for the policy of "k" with a near deadline.
	leave := func(t *testing.T, f policyFor, capacity int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		want(t, func(_ context.Context, key string) (limiter.Policy, error) { return f(ctx, key) }, "k", capacity)
	}
	for name, test := range map[string]func(t *testing.T){
		"ends with the context, and the read continues": func(t *testing.T) {
			source := newSource(500 * time.Millisecond)
			f := overrides.New(source, "api")
			l := withOverrides(t, f, limiter.FailOpen())
			began := time.Now()
			for i := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				if r, err := l.Allow(ctx, "k"); r.Allowed || !errors.Is(err, limiter.ErrCanceled) {
					t.Errorf("Allow: %+v, %v; want ErrCanceled", r, err)
				}
				cancel()
				wantTook(t, began, time.Duration(i+1)*deadline)
			}
			want(t, f, "k", 5)
			wantTook(t, began, 500*time.Millisecond)
			source.wantReads(t, 1)
		},
		"ends after one second": func(t *testing.T) {
			source, errs := newSource(0), []error{}
			f := overrides.New(source, "api", collect(&errs))
			want(t, f, "k", 5)
			<-time.After(age)
			source.set(7, time.Hour)
			began := time.Now()
			want(t, f, "k", 5)
			wantTook(t, began, time.Second)
			testenv.Equal(t, len(errs), 1, "errors that OnError got:", errs)
			testenv.ErrorIs(t, errors.Join(errs...), context.DeadlineExceeded, "OnError")
			<-time.After(age - 1)
			want(t, f, "k", 5)
			source.wantReads(t, 2) // no retry before MaxAge has passed since the failure
		},
		"ends if the source panics": func(t *testing.T) {
			var errs []error
			leave(t, overrides.New(panicking{}, "api", collect(&errs)), 0)
			testenv.Equal(t, len(errs), 1, "errors that OnError got:", errs)
			testenv.ErrorIs(t, errors.Join(errs...), limiter.ErrNotApplied, "OnError")
		},
		"is for one caller; the others wait for it without a copy, and otherwise use the old one": func(t *testing.T) {
			source := newSource(500 * time.Millisecond)
			f := overrides.New(source, "api")
			for range 64 {
				go want(t, f, "k", 5)
			}
			want(t, f, "k", 5)
			<-time.After(age)
			source.set(7, 500*time.Millisecond)
			go want(t, f, "k", 7)
			synctest.Wait()
			began := time.Now()
			for range 64 {
				want(t, f, "k", 5)
			}
			wantTook(t, began, 0)
			<-time.After(500 * time.Millisecond)
			synctest.Wait()
			want(t, f, "k", 7)
			source.wantReads(t, 2)
		},
		"leaves half of the time to the decision": func(t *testing.T) {
			source := newSource(0)
			f := overrides.New(source, "api", overrides.OnError(func(error) {}))
			want(t, f, "k", 5)
			<-time.After(age)
			source.set(7, time.Hour)
			began := time.Now()
			for range 2 { // the second does not wait, because the read is in flight
				leave(t, f, 5)
				wantTook(t, began, deadline/2)
			}
			source.wantReads(t, 2)
			<-time.After(time.Second) // a goroutine that is left fails the test
		},
		"ends with a new read if the process was frozen": func(t *testing.T) {
			source, freeze := newSource(time.Hour), newFreeze()
			f := overrides.New(source, "api", freeze.option)
			var waiting sync.WaitGroup
			waiting.Go(func() { want(t, f, "k", 5) })
			synctest.Wait()
			freeze.wall.Add(int64(time.Minute))
			source.set(5, 0)
			began := time.Now()
			want(t, f, "k", 5)
			waiting.Wait()
			wantTook(t, began, 0)
			source.wantReads(t, 2)
		},
		"begins again after the failure of a frozen read": func(t *testing.T) {
			source, freeze, errs := newSource(0), newFreeze(), []error{}
			f := overrides.New(source, "api", freeze.option, collect(&errs))
			want(t, f, "k", 5)
			<-time.After(age)
			source.set(5, time.Hour)
			leave(t, f, 5)
			freeze.wall.Add(int64(time.Minute))
			<-time.After(time.Second)
			synctest.Wait()
			source.set(7, 0)
			want(t, f, "k", 7)
			testenv.Equal(t, len(errs), 1, "errors that OnError got:", errs)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

// freeze are the clocks of a process that may be frozen: then the wall clock alone advances, by wall.
type freeze struct {
	wall   atomic.Int64
	option overrides.Option
}

func newFreeze() *freeze {
	f, start := &freeze{}, time.Now()
	f.option = overrides.WithClocks(
		func() time.Time { return time.Now().Add(time.Duration(f.wall.Load())) },
		func() time.Duration { return time.Since(start) })
	return f
}
