package prove_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// killsARound is how many processes are killed in a round, each while the others go on.
const killsARound = 3

// A process that is killed takes with it what was under way, and nothing else. All rounds
// have the same file, with the logs that those who were killed have left.
func TestProcessesThatAreKilledForgetNothingThatTheyAcknowledged(t *testing.T) {
	path := newFile(t)
	told := ledger.New()
	proof.Rounds(t, "kills of processes on SQLite", campaign.Sizes{CI: 14, Nightly: 340, Release: 1000}, func(t *testing.T, r *campaign.Round) {
		if r.Number%epoch == 0 {
			forget(t, path, told)
		}
		var all sync.WaitGroup
		for range killsARound {
			p := startTaker(t, path, r.Rand.Uint64(), into(told))
			after, early := time.Duration(r.Rand.Int64N(int64(60*time.Millisecond))), r.Rand.IntN(5) == 0
			all.Go(func() { p.kill(t, after, early) })
		}
		all.Wait()
		r.Count(campaign.ProcessKills, killsARound)
		if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
			r.Count("logs recovered", 1)
		}
		db := lookInto(t, path)
		defer db.Close()
		judgeFile(t, r, told.Compare(storedIn(t, db)), told)
		if r.Number%10 == 0 {
			intact(t, db)
		}
	})
}

// forget goes on with an empty file.
func forget(t testing.TB, path string, told *ledger.Ledger) {
	t.Helper()
	store := openFile(t, path)
	defer store.Close()
	for _, query := range []string{"DELETE FROM limiter_token_buckets", "DELETE FROM limiter_fixed_windows"} {
		if _, err := store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	told.Forget()
}

// judgeFile counts what a comparison has found, and the answers since the last one.
func judgeFile(t testing.TB, r *campaign.Round, v ledger.Verdict, told *ledger.Ledger) {
	t.Helper()
	r.None(campaign.LostTakes, v.Lost)
	r.None(campaign.DoubleCharges, v.Double)
	r.None(campaign.OverAdmitted, v.Over)
	for _, found := range v.Found[:min(len(v.Found), 5)] {
		t.Log(found)
	}
	if err := told.WrongErrors(); err != nil {
		t.Error(err)
	}
	countSeveral(r, told)
	for class, n := range told.Classes() {
		r.Count(campaign.Operations, n)
		if class == outcome.Unknown {
			r.Count(campaign.Unknown, n)
		}
	}
}
