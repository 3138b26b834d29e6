package prove_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// A killed process loses only what was in flight. All rounds have one file, and the logs that were left.
func TestSQLiteProcessKills(t *testing.T) {
	const kills = 3 // in a round, each while the other processes go on
	path := newFile(t)
	told := ledger.New()
	proof.Rounds(t, "kills of processes on SQLite", campaign.Sizes{CI: 14, Nightly: 340, Release: 1000}, func(t *testing.T, r *campaign.Round) {
		if r.Number%epoch == 0 {
			forget(t, path, told)
		}
		var all sync.WaitGroup
		for range kills {
			p := startTaker(t, path, r.Rand.Uint64(), into(told))
			after, early := time.Duration(r.Rand.Int64N(int64(60*time.Millisecond))), r.Rand.IntN(5) == 0
			all.Go(func() { p.kill(t, after, early) })
		}
		all.Wait()
		r.Count(campaign.ProcessKills, kills)
		if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
			r.Count("logs recovered", 1)
		}
		judgeFile(t, r, path, told)
	})
}

func forget(t testing.TB, path string, told *ledger.Ledger) {
	store := openFile(t, path)
	defer store.Close()
	for _, table := range tables.All {
		must(t, testenv.ErrorOf(store.DB().ExecContext(t.Context(), "DELETE FROM "+table.Name)))
	}
	told.Forget()
}

// If a file is moved away, every process that has it open notices that, and none makes a new file. When the
// file is back, no granted take is lost. While it is missed, nothing is granted.
func TestSQLiteFileAway(t *testing.T) {
	proof.Rounds(t, "files of SQLite away", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		told := ledger.New()
		var granted atomic.Int64
		var missed [2]atomic.Bool // whether the last answer of a process says that the file is missing
		var takers []*taker
		for i := range missed {
			takers = append(takers, startTaker(t, path, r.Rand.Uint64(), func(q request, a answer) {
				switch a.Class {
				case outcome.Misconfigured:
					missed[i].Store(true)
					return
				case outcome.Carried:
					granted.Add(1)
					missed[i].Store(false)
				case outcome.Refused:
					missed[i].Store(false)
				}
				into(told)(q, a)
			}))
		}
		for _, p := range takers {
			p.await()
		}
		all := func(miss bool, within string) {
			t.Helper()
			began := time.Now()
			if !await(t, recovery, func() bool { return missed[0].Load() == miss && missed[1].Load() == miss }) {
				t.Fatalf("after %v not all processes agree that the file is missing: want %t", recovery, miss)
			}
			r.Most(within, time.Since(began))
		}
		pause(t.Context(), r, 100*time.Millisecond)
		// The file alone, or with its companions, or the directory.
		away := [][]string{{path}, {path, path + "-wal", path + "-shm"}, {filepath.Dir(path)}}[r.Rand.IntN(3)]
		for _, file := range away {
			must(t, os.Rename(file, file+".away"))
		}
		all(true, "until a file was missed")
		before := granted.Load()
		pause(t.Context(), r, 200*time.Millisecond)
		if more := granted.Load() - before; more > int64(len(takers)*takerWorkers) { // which were in flight
			t.Errorf("%d takes were granted after the file was missed", more)
		}
		testenv.ErrorIs(t, testenv.ErrorOf(os.Stat(path)), os.ErrNotExist, "a process made a new file")
		for _, file := range away {
			must(t, os.Rename(file+".away", file))
		}
		all(false, "recovery")
		pause(t.Context(), r, 50*time.Millisecond)
		for _, p := range takers {
			p.kill(t, 0, false)
		}
		judgeFile(t, r, path, told)
	})
}
