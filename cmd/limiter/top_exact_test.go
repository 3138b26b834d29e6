//go:build unix

package main_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
)

func TestTopExact(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		const rows = 9000 // more than a statement reads
		db.exec(t, expired(db.url, strconv.Itoa(rows)))
		succeeds(t, db.url, "block", "old", "victim", "--for", "1h", "--capacity", "1", "--interval", "1s")
		use(t, db.store, "other", bucket, "alice", 5)
		got := decode[topped](t, succeeds(t, db.url, "top", "--exact", "old", "-o", "json"))
		if !got.All || got.RowsRead != rows+1 || got.Rows != rows+1 {
			t.Errorf("read %d of %d rows, all: %v; want %d", got.RowsRead, got.Rows, got.All, rows+1)
		}
		if len(got.Limiters) != 1 || len(got.Limiters[0].Keys) != 1 || *got.Limiters[0].Keys[0].Key != "victim" || got.Limiters[0].Keys[0].Allowed {
			t.Errorf("the blocked key is not found: %+v", got.Limiters)
		}
		x := openTerminal(t, 80, db.url, "top", "--exact", "old")
		for _, text := range []string{"rows read, ", `"victim"`} {
			x.await(text)
		}
		x.wantEnd(0)
		contains(t, succeeds(t, db.url, "top", "--exact", "unknown").stdout, "known limiters: old, other")
	})
}

func TestTopExactProgress(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, target target) {
		target.exec(t, expired(target.url, "9000"))
		db, err := database.Open(t.Context(), database.Options{URL: target.url})
		must(t, err)
		defer db.Close()
		var rows []int64
		var shares []float64
		if _, err := db.Exact(t.Context(), "old", 10, 10*time.Second, func(read int64, share float64) {
			rows, shares = append(rows, read), append(shares, share)
		}); err != nil {
			t.Fatal(err)
		}
		if len(rows) < 4 || !slices.IsSorted(rows) || !slices.IsSorted(shares) || shares[0] >= 0.5 || slices.Max(shares) < 0.8 {
			t.Errorf("it reports %d rows and the shares %.2f", rows, shares)
		}
		canceled, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err = db.Exact(canceled, "old", 10, 10*time.Second, func(int64, float64) { calls++; cancel() })
		if !errors.Is(err, context.Canceled) || calls != 1 {
			t.Errorf("canceled after the first statement: %v, and %d statements", err, calls)
		}
	})
}
