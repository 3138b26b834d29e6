package prove_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
)

// killsARound is how many processes are killed in a round, each while the others go on.
const killsARound = 3

// A process that is killed takes with it what was under way, and nothing else. All rounds
// have the same file, with the logs that those who were killed have left.
func TestSQLiteProcessKills(t *testing.T) {
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
		judgeAll(t, r, told, told.Compare(storedIn(t, db)))
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
	for _, table := range tables.All {
		if _, err := store.DB().ExecContext(t.Context(), "DELETE FROM "+table.Name); err != nil {
			t.Fatal(err)
		}
	}
	told.Forget()
}
