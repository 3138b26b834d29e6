package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// sweepStart is the position of a sweep that begins with the first row of every table.
var sweepStart = strings.TrimSuffix(strings.Repeat("0,", len(tables.All)), ",")

// A row expires an hour after its end. Of each pair, the second row ends 1 ns later.
func TestSweep(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	end := t0.Add(47 * time.Hour).UnixNano()
	store.SetClock(func() time.Time { return time.Unix(0, end).Add(time.Hour) })
	execute(t, store, `INSERT INTO limiter_token_buckets VALUES
		('full', x'01', ?1, ?1 - 1, 1000, 1, 1), ('full', x'02', ?1 + 1, ?1 - 1, 1000, 1, 1),
		('refunded', x'01', 0, ?1, 1000, 1, 1), ('refunded', x'02', 0, ?1 + 1, 1000, 1, 1)`, end)
	execute(t, store, `INSERT INTO limiter_fixed_windows VALUES
		('l', x'01', ?1 - 1000000, 1000000, 1, 1, ?1 - 1, 1), ('l', x'02', ?1 - 1000000 + 1, 1000000, 1, 1, ?1 - 1, 1)`, end)
	if n, err := store.Sweep(t.Context(), 10); err != nil || n != 3 {
		t.Errorf("Sweep = %d, %v; want 3", n, err)
	}
	left := dump(t, store, `SELECT limiter, hex(key) FROM limiter_token_buckets UNION SELECT limiter, hex(key) FROM limiter_fixed_windows ORDER BY limiter`)
	testenv.Equal(t, left, "full 02\nl 02\nrefunded 02\n", "left, the second of each pair")
	testenv.ErrorIs(t, testenv.ErrorOf(store.Sweep(t.Context(), 0)), limiter.ErrInvalid, "Sweep(0)")
}

func TestShortSweepsOfNewStores(t *testing.T) {
	skipShort(t, "it makes hundreds of Stores")
	t.Parallel()
	const live, expired, looks, calls = 600, 100, 24, 1000
	for name, key := range map[string]string{ // of the row i
		"keys of one length": `CAST(printf('%06d', i) AS BLOB)`,
		// Each of the first 250 divides the others from the rows before it.
		"keys of which each begins with the one before": `CAST(printf('%.*c', min(i, 250), 'k') || printf('%06d', i) AS BLOB)`,
		"keys that are spread":                          `CAST(printf('%08x', i * 2654435761 % 4294967296) AS BLOB)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := openFile(t)
			now := time.Now().UnixNano()
			fill := func(table, columns string) {
				t.Helper()
				execute(t, first, fmt.Sprintf(`INSERT INTO %s
					WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
					SELECT 'l', %s, %s FROM n`, table, live+2*expired-1, key, columns), now, expired, live+expired)
			}
			end := `iif(i BETWEEN ?2 AND ?3 - 1, ?1, ?1 - 86400000000000)`
			fill("limiter_token_buckets", end+", 1, 1000, 1, 1")
			fill("limiter_fixed_windows", end+", 1000000, 1, 1, 1, 1")
			removed, call := int64(0), 0
			for ; removed < 4*expired && call < calls; call++ {
				store, err := sqlite.New(first.DB())
				must(t, err)
				// A sweep looks at its context before each page, and before each statement.
				n, err := store.Sweep(testenv.Looks(t.Context(), looks), 1_000_000)
				if err != nil && !errors.Is(err, limiter.ErrCanceled) {
					t.Fatal(err)
				}
				removed += n
				must(t, store.Close())
			}
			t.Logf("%d calls removed %d rows", call, removed)
			testenv.Equal(t, removed, 4*expired, call, "calls that look at their context", looks, "times removed")
		})
	}
}

func TestSweepProgress(t *testing.T) {
	t.Parallel()
	first := openFile(t)
	execute(t, first, `INSERT INTO limiter_token_buckets
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
		SELECT 'l', CAST(printf('%04d', i) AS BLOB), 1, 1, 1000, 1, 1 FROM n`)
	must(t, first.ContinueSweep(sweepStart))
	n, err := first.Sweep(t.Context(), 500)
	must(t, err)
	part := first.SweepProgress()
	if part.Deleted != n || part.Visited < 250 || part.Visited > 500 || part.Total != 0 {
		t.Fatalf("after a part of the rows: Sweep = %d; %+v", n, part)
	}
	second, err := sqlite.New(first.DB())
	must(t, err)
	must(t, second.ContinueSweep(part.Position))
	if n, err := second.Sweep(t.Context(), 10_000); err != nil || n != 1500 {
		t.Errorf("Sweep = %d, %v; want 1500", n, err)
	}
	testenv.Equal(t, second.SweepProgress().Visited, 1500, "visited after the other rows")
	must(t, second.ContinueSweep("")) // that of a store that has not swept
	if err := second.ContinueSweep("12,0"); !errors.Is(err, limiter.ErrInvalid) || strings.Contains(err.Error(), "12,0") {
		t.Errorf("ContinueSweep from a position in PostgreSQL: %v, want ErrInvalid without it, because it may hold a key", err)
	}
}
