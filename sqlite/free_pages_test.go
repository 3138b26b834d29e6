package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

func TestNewKeysEnlargeTheFile(t *testing.T) {
	skipShort(t, "it adds thousands of keys")
	t.Parallel()
	const callers, keys = 8, 300
	for name, pragma := range map[string]string{
		"a file as Open makes it":           "",
		"a file that keeps no free pages":   "_auto_vacuum=1",
		"a file that frees pages on demand": "_auto_vacuum=2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := movable(t)
			db := openDB(t, path, "?"+pragma)
			must(t, testenv.ErrorOf(db.ExecContext(t.Context(), "CREATE TABLE other (x)")))
			must(t, db.Close())
			// Two Stores, as two processes have.
			stores := []*sqlite.Store{openPath(t, path), openPath(t, path)}
			var all sync.WaitGroup
			for w := range callers {
				all.Go(func() {
					p := &faulty{T: t, store: stores[w%len(stores)]}
					for i := range keys {
						key := fmt.Sprintf("key-%d-%d", i, w)
						must(t, p.takes(key))
						must(t, testenv.ErrorOf(p.store.DoAll(t.Context(), []limiter.Op{takeOf("m", key, slow, 1), takeOf("n", key, window, 1)})))
					}
				})
			}
			all.Wait()
			if got := dump(t, stores[0], "SELECT count(*) FROM limiter_token_buckets"); got != fmt.Sprintln(2*callers*keys) {
				t.Errorf("%s rows, want %d", got, 2*callers*keys)
			}
			if got := dump(t, stores[0], "SELECT name FROM sqlite_schema WHERE name LIKE '%room%'"); got != "" {
				t.Errorf("the schema has %s left in it", got)
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".limiter*"))
			must(t, err)
			if len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}
