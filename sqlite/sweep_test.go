package sqlite_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

func TestSweepRemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	now := t0.Add(48 * time.Hour)
	store.SetClock(func() time.Time { return now })
	const rows = 2500 // three pages of each table
	fill := func(table, columns string) {
		t.Helper()
		// Every third row expired when its end, an hour before now, is reached; the next is later by 1 ns.
		if _, err := store.DB().ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO %s
			WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT 'l' || (i %% 7), CAST(i AS BLOB), %s FROM n`, table, rows-1, columns),
			now.Add(-time.Hour).UnixNano()); err != nil {
			t.Fatal(err)
		}
	}
	fill("limiter_token_buckets", "?1 + (i % 3 > 0), ?1 - 1, 1000, 1, 1")
	fill("limiter_fixed_windows", "?1 - 1000000 + (i % 3 > 0), 1000000, 1, 1, ?1 - 1, 1")
	const expired = (rows + 2) / 3

	if n, err := store.Sweep(t.Context(), 10); err != nil || n != 10 {
		t.Fatalf("Sweep(10) = %d, %v; want 10", n, err)
	}
	if n, err := store.Sweep(t.Context(), 1_000_000); err != nil || n != 2*expired-10 {
		t.Fatalf("Sweep = %d, %v; want %d", n, err, 2*expired-10)
	}
	for _, table := range []string{"limiter_token_buckets", "limiter_fixed_windows"} {
		want := fmt.Sprintln(rows-expired, 0)
		if got := dump(t, store, `SELECT count(*), total(CAST(CAST(key AS TEXT) AS INTEGER) % 3 = 0) FROM `+table); got != want {
			t.Errorf("%s holds, and of them expired: %s, want %s", table, got, want)
		}
	}
	// A bucket that was refunded may be full long before its latest take.
	for i, end := range []int64{0, 1} {
		if _, err := store.DB().ExecContext(t.Context(), `INSERT INTO limiter_token_buckets VALUES ('l', ?, 0, ?, 1000, 1, 1)`,
			[]byte{byte('a' + i)}, now.Add(-time.Hour).UnixNano()+end); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := store.Sweep(t.Context(), 1000); err != nil || n != 1 {
		t.Errorf("Sweep = %d, %v; want 1", n, err)
	}
	if got := dump(t, store, `SELECT hex(key) FROM limiter_token_buckets WHERE limiter = 'l'`); got != "62\n" {
		t.Errorf("%q is left, want 62", got)
	}
	if _, err := store.Sweep(t.Context(), 0); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("Sweep(0): %v, want ErrInvalid", err)
	}
}
