package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

func TestRefusalsNeedNoWriteLock(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	bucket := newLimiter(t, store, "bucket", day, at(t0))
	window := newLimiter(t, store, "window", limiter.FixedWindow{Limit: 2, Window: 24 * time.Hour}, at(t0))
	for _, l := range []*limiter.Limiter{bucket, window} {
		if r, err := l.AllowN(t.Context(), "key", 2); err != nil || !r.Allowed {
			t.Fatalf("AllowN(2) = %+v, %v; want it allowed", r, err)
		}
	}
	conn := lock(t, store)
	defer conn.Close()
	for _, l := range []*limiter.Limiter{bucket, window} {
		r, err := l.Allow(t.Context(), "key")
		if err != nil || r.Allowed || r.RetryAfter == 0 || r.Source != limiter.SourceStore {
			t.Errorf("%T: Allow beside a writer = %+v, %v; want a refusal by the store", l.Policy(), r, err)
		}
		if r, err := l.Peek(t.Context(), "key"); err != nil || r.Remaining != 0 {
			t.Errorf("%T: Peek beside a writer = %+v, %v; want nothing left", l.Policy(), r, err)
		}
	}
	changed := newLimiter(t, store, "bucket", limiter.PerMinute(2), at(t0))
	if r, err := changed.Peek(t.Context(), "key"); err != nil || r.RetryAfter != 30*time.Second {
		t.Errorf("Peek by another policy beside a writer = %+v, %v; want a refusal for 30s", r, err)
	}

	// A take waits for the lock until its caller goes, and did nothing then.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	begin := time.Now()
	_, err := bucket.Allow(ctx, "another")
	if !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) || errors.Is(err, limiter.ErrOutcomeUnknown) {
		t.Errorf("Allow beside a writer: %v; want ErrCanceled, and its outcome known", err)
	}
	if d := time.Since(begin); d > time.Second {
		t.Errorf("Allow came back %v after it began, with a context of 20ms", d)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if r, err := bucket.AllowN(t.Context(), "another", 2); err != nil || !r.Allowed {
		t.Errorf("AllowN(2) after the writer = %+v, %v; want it allowed", r, err)
	}
}

// If a refusal waited, its time limit could end, and FailOpen would let a request pass on a key that
// has nothing left.
func TestRefusalsWaitForNobodyWhoWrites(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		callers int
		write   func(ctx context.Context, store *sqlite.Store) error
	}{
		{"takes", 5, func(ctx context.Context, store *sqlite.Store) error {
			_, err := store.Do(ctx, takeOf("l", "a", slow, 1))
			return err
		}},
		{"takes of several limits", 2, func(ctx context.Context, store *sqlite.Store) error {
			_, err := store.DoAll(ctx, []limiter.Op{takeOf("l", "a", slow, 1), takeOf("l", "b", slow, 1)})
			return err
		}},
		{"a sweep", 1, func(ctx context.Context, store *sqlite.Store) error {
			_, err := store.Sweep(ctx, 1000)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "limiter.db")
			synctest.Test(t, func(t *testing.T) {
				store := openPath(t, path)
				for key, at := range map[string]int64{"used": time.Now().UnixNano(), "expired": 1} {
					op := takeOf("l", key, slow, slow.Capacity)
					op.At = at
					if _, err := store.Do(t.Context(), op); err != nil {
						t.Fatal(err)
					}
				}
				conn := lock(t, store)
				defer conn.Close()
				var all sync.WaitGroup
				for range c.callers {
					all.Go(func() {
						if err := c.write(t.Context(), store); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				l := newLimiter(t, store, "l", slow, limiter.FailOpen())
				for range 3 {
					began := time.Now()
					if r, err := l.Allow(t.Context(), "used"); err != nil || r.Allowed || r.Source != limiter.SourceStore || time.Since(began) > 0 {
						t.Errorf("%+v, %v after %v; want a refusal by the store at once", r, err, time.Since(began))
					}
				}
				if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
					t.Fatal(err)
				}
				all.Wait()
			})
		})
	}
}

// lock returns a connection that holds the write lock.
func lock(t *testing.T, store *sqlite.Store) *sql.Conn {
	t.Helper()
	conn, err := store.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestATakeWaitsForTheLock(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	conn := lock(t, store)
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := newLimiter(t, store, "l", day, at(t0)).Allow(context.Background(), "key")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("Allow beside a writer: %v; want it to wait", err)
	case <-time.After(20 * time.Millisecond):
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("Allow after the writer: %v", err)
	}
}
