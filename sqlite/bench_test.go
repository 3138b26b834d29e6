package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// BenchmarkTake measures takes on many keys, and the statement that one would write by hand: prepared, with
// the same settings, on one connection. Compare them within one run.
func BenchmarkTake(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, c := range []struct {
			name string
			open func(b testing.TB) func(key string) bool
		}{{"ours", oursPlenty}, {"by hand", byHand}} {
			b.Run(strconv.Itoa(callers)+" callers/"+c.name, func(b *testing.B) {
				measure(b, callers, c.open(b), true)
			})
		}
	}
}

// BenchmarkRefusal measures takes of keys that have nothing left.
func BenchmarkRefusal(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(strconv.Itoa(callers)+" callers", func(b *testing.B) {
			allow := ours(b, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 24 * time.Hour})
			measure(b, callers, allow, false)
		})
	}
}

// BenchmarkAllowAll measures requests over a bucket and a window beside two requests, one after the
// other. Compare them within one run.
func BenchmarkAllowAll(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, c := range []struct {
			name  string
			allow func(key string, bucket, window *limiter.Limiter) (limiter.Result, error)
		}{
			{"together", func(key string, bucket, window *limiter.Limiter) (limiter.Result, error) {
				res, err := limiter.AllowAll(context.Background(), limiter.Claim{Limiter: bucket, Key: key}, limiter.Claim{Limiter: window, Key: key})
				return res.Result, err
			}},
			{"one by one", func(key string, bucket, window *limiter.Limiter) (limiter.Result, error) {
				if r, err := bucket.Allow(context.Background(), key); err != nil || !r.Allowed {
					return r, err
				}
				return window.Allow(context.Background(), key)
			}},
		} {
			b.Run(strconv.Itoa(callers)+" callers/"+c.name, func(b *testing.B) {
				store := openFile(b)
				bucket := newLimiter(b, store, "bench", plenty)
				window := newLimiter(b, store, "bench", limiter.FixedWindow{Limit: 1 << 30, Window: 24 * time.Hour})
				measure(b, callers, func(key string) bool {
					r, err := c.allow(key, bucket, window)
					if err != nil {
						b.Error(err)
					}
					return r.Allowed
				}, true)
			})
		}
	}
}

const benchKeys = 10_000

var plenty = limiter.TokenBucket{Capacity: 1 << 30, Refill: 1_000_000, Interval: time.Second}

func benchKey(i int64) string { return "client-" + strconv.FormatInt(i%benchKeys, 10) }

// measure asks for each key once, and then measures.
func measure(b *testing.B, callers int, allow func(key string) bool, want bool) {
	var filler atomic.Int64
	each(64, func() {
		for i := filler.Add(1); i <= benchKeys; i = filler.Add(1) {
			allow(benchKey(i))
		}
	})
	var next, wrong atomic.Int64
	n := int64(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	each(callers, func() {
		for i := next.Add(1); i <= n; i = next.Add(1) {
			if allow(benchKey(i*7919)) != want {
				wrong.Add(1)
			}
		}
	})
	if wrong.Load() > 0 {
		b.Errorf("%d of %d decisions were not %v", wrong.Load(), n, want)
	}
}

func oursPlenty(b testing.TB) func(key string) bool {
	return ours(b, plenty)
}

func ours(b testing.TB, p limiter.Policy) func(key string) bool {
	l := newLimiter(b, openFile(b), "bench", p)
	return func(key string) bool {
		r, err := l.Allow(context.Background(), key)
		if err != nil {
			b.Error(err)
		}
		return r.Allowed
	}
}

const (
	byHandParams = "?_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate"
	byHandTable  = "CREATE TABLE buckets (key TEXT PRIMARY KEY, full_at INTEGER NOT NULL) STRICT, WITHOUT ROWID"
	byHandTake   = `INSERT INTO buckets AS b (key, full_at) VALUES (?1, ?2 + ?3)
ON CONFLICT (key) DO UPDATE SET full_at = max(b.full_at, ?2) + ?3
WHERE max(b.full_at, ?2) + ?3 <= ?2 + ?4
RETURNING full_at`
)

func byHand(b testing.TB) func(key string) bool {
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(b.TempDir(), "hand.db"))+byHandParams)
	must(b, err)
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(b.Context(), byHandTable)
	must(b, err)
	take, err := db.PrepareContext(b.Context(), byHandTake)
	must(b, err)
	b.Cleanup(func() { take.Close() })
	return func(key string) bool {
		var fullAt int64
		err := take.QueryRowContext(context.Background(), key, time.Now().UnixNano(), int64(1000), int64(1000)<<30).Scan(&fullAt)
		if err != nil {
			b.Error(err)
		}
		return err == nil
	}
}

// each runs f in n goroutines.
func each(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}
