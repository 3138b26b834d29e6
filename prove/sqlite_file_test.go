package prove_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// A process that is killed loses what was in flight, and nothing else. All rounds have the same file, with
// the logs that killed processes have left.
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
		db := lookInto(t, path)
		defer db.Close()
		judgeAll(t, r, told, told.Compare(storedIn(t, db)))
		if r.Number%10 == 0 {
			intact(t, db)
		}
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
		takers := newTakers(t, path, r)
		pause(t.Context(), r, 100*time.Millisecond)
		// The file alone, or with its companions, or the directory.
		away := [][]string{{path}, {path, path + "-wal", path + "-shm"}, {filepath.Dir(path)}}[r.Rand.IntN(3)]
		for _, file := range away {
			must(t, os.Rename(file, file+".away"))
		}
		began := time.Now()
		takers.all(t, "miss the file", func(a *member) bool { return a.missed.Load() })
		r.Most("until a file was missed", time.Since(began))
		granted := takers.granted.Load()
		pause(t.Context(), r, 200*time.Millisecond)
		if more := takers.granted.Load() - granted; more > int64(len(takers.members)*takerWorkers) { // which were in flight
			t.Errorf("%d takes were granted after the file was missed", more)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a process made a new file, %v", err)
		}
		for _, file := range away {
			must(t, os.Rename(file+".away", file))
		}
		began = time.Now()
		takers.all(t, "work again", func(a *member) bool { return !a.missed.Load() })
		r.Most("recovery", time.Since(began))
		pause(t.Context(), r, 50*time.Millisecond)
		takers.kill(t)
		db := lookInto(t, path)
		defer db.Close()
		judgeAll(t, r, takers.told, takers.told.Compare(storedIn(t, db)))
		intact(t, db)
	})
}

type takers struct {
	members []*member
	granted atomic.Int64
	told    *ledger.Ledger
}

type member struct {
	*taker
	missed atomic.Bool // whether its last answer says that the file is missing
}

func newTakers(t *testing.T, path string, r *campaign.Round) *takers {
	h := &takers{told: ledger.New()}
	enter := into(h.told)
	for range 2 {
		a := &member{}
		a.taker = startTaker(t, path, r.Rand.Uint64(), func(q request, told answer) {
			switch told.Class {
			case outcome.Misconfigured:
				a.missed.Store(true)
				return
			case outcome.Carried:
				h.granted.Add(1)
				a.missed.Store(false)
			case outcome.Refused:
				a.missed.Store(false)
			}
			enter(q, told)
		})
		h.members = append(h.members, a)
	}
	for _, a := range h.members {
		a.await()
	}
	return h
}

// all waits until a condition holds for all processes.
func (h *takers) all(t *testing.T, what string, is func(*member) bool) {
	t.Helper()
	if !await(t, recovery, func() bool {
		return !slices.ContainsFunc(h.members, func(a *member) bool { return !is(a) })
	}) {
		t.Fatalf("not all processes %s after %v", what, recovery)
	}
}

func (h *takers) kill(t *testing.T) {
	var all sync.WaitGroup
	for _, a := range h.members {
		all.Go(func() { a.taker.kill(t, 0, false) })
	}
	all.Wait()
}
