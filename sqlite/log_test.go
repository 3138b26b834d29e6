package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// The log that grows beside a reader is small again after it, and no take fails meanwhile.
func TestTheLogShrinksWhenALongReadHasEnded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	store := openPath(t, path)
	l := newLimiter(t, store, "l", limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour}, at(t0))
	if _, err := l.Allow(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	reader, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reader.QueryRow("SELECT count(*) FROM limiter_fixed_windows").Scan(&n); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"CREATE TABLE ballast (b BLOB)", "INSERT INTO ballast VALUES (zeroblob(20000000))"} {
		if _, err := store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 16 << 20
	if size := logSize(t, path); size < limit {
		t.Fatalf("the log has %d bytes while somebody reads; it was to grow", size)
	}
	if _, err := l.Allow(t.Context(), "key"); err != nil {
		t.Errorf("Allow beside a reader: %v", err)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first writes the log back, the next one begins a new log
		if _, err := l.Allow(t.Context(), "key"); err != nil {
			t.Errorf("Allow after the reader: %v", err)
		}
	}
	if size := logSize(t, path); size > limit+1<<12 {
		t.Errorf("the log has %d bytes still, want %d at most", size, limit)
	}
}

func logSize(t *testing.T, path string) int64 {
	t.Helper()
	log, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return log.Size()
}
