package prove_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
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

// A log has a header, and each page one whose second word is not 0 in the last frame of a transaction.
const (
	logHeader   = 32
	frameHeader = 24
)

// past is what was stored after each transaction, the first before any.
type past []map[ledger.ID]int64

// A power cut takes away the end of the log, which was not on the disk yet. At any length of the log, the
// file holds the state of one instant: all takes up to the last one that is whole in the log.
func TestSQLiteLogCuts(t *testing.T) {
	proof.Rounds(t, "cut logs of SQLite", campaign.Sizes{CI: 2, Nightly: 20, Release: 60}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		store := openFile(t, path)
		defer store.Close()
		takes := takesOf(t, r, store)
		// In every other round the log goes on in the old one, whose frames are still there.
		takes(r.Rand.IntN(150))
		// Without free pages the store would let the file grow, and then empty the log.
		for free := 0; free < 48; {
			takes(1)
			must(t, store.DB().QueryRowContext(t.Context(), "PRAGMA freelist_count").Scan(&free))
		}
		checkpoint := "TRUNCATE"
		if r.Number%2 == 0 {
			checkpoint = "RESTART"
		}
		var busy int
		if err := store.DB().QueryRowContext(t.Context(), "PRAGMA wal_checkpoint("+checkpoint+")").Scan(&busy, new(int), new(int)); err != nil || busy != 0 {
			t.Fatalf("checkpoint: busy %d, %v", busy, err)
		}
		db := lookInto(t, path)
		defer db.Close()
		history := past{storedIn(t, db)}
		for range 30 + r.Rand.IntN(60) {
			if takes(1) {
				history = append(history, storedIn(t, db))
			}
		}
		file, err := os.ReadFile(path)
		must(t, err)
		log, err := os.ReadFile(path + "-wal")
		must(t, err)
		cutAnywhere(t, r, file, log, history)
	})
}

// takesOf returns a function that makes n takes, one after another, and tells whether the last was granted.
func takesOf(t testing.TB, r *campaign.Round, store limiter.Store) func(n int) bool {
	limiters := lastingOf(t, store, limiter.WithTimeout(waitLimit))
	return func(n int) (granted bool) {
		for range n {
			result, err := draw(r.Rand).ask(t.Context(), limiters)
			must(t, err)
			granted = result.Allowed
			r.Count(campaign.Operations, 1)
		}
		return granted
	}
}

// cutAnywhere cuts the log at each end of a frame, and within each.
func cutAnywhere(t *testing.T, r *campaign.Round, file, log []byte, history past) {
	frame := frameHeader + int(binary.BigEndian.Uint32(log[8:]))
	salt := log[16:24]
	path := filepath.Join(t.TempDir(), "cut.db")
	takes := 0
	check := func(log []byte, how string) {
		t.Helper()
		r.Count(how, 1)
		if got := reopened(t, path, file, log); !maps.Equal(got, history[takes]) {
			t.Errorf("%s after %d bytes, behind %d takes: %v is stored, and was %v", how, len(log), takes, got, history[takes])
		}
	}
	for _, n := range []int{0, 1, logHeader - 1} {
		check(log[:n], campaign.Truncations)
	}
	at := logHeader
	for ; at+frame <= len(log) && bytes.Equal(log[at+8:at+16], salt); at += frame {
		within := at + 1 + r.Rand.IntN(frame-1)
		check(log[:at], campaign.Truncations)
		check(log[:within], campaign.Truncations)
		check(torn(log, within), "logs torn")
		if binary.BigEndian.Uint32(log[at+4:]) != 0 {
			takes++
		}
	}
	check(log[:at], campaign.Truncations)
	check(log, "logs left whole")
	testenv.Equal(t, takes, len(history)-1, "transactions of the log")
}

// torn returns a log of which a sector did not come to the disk, though later ones did.
func torn(log []byte, at int) []byte {
	const sector = 512
	log = bytes.Clone(log)
	for i := at; i < len(log) && (i == at || i%sector != 0); i++ {
		log[i] ^= 0xff
	}
	return log
}

// reopened returns what a store finds in a file with such a log.
func reopened(t *testing.T, path string, file, log []byte) map[ledger.ID]int64 {
	for name, with := range map[string][]byte{path: file, path + "-wal": log} {
		must(t, os.WriteFile(name, with, 0o600))
	}
	store := openFile(t, path)
	if err := store.Check(t.Context()); err != nil {
		t.Fatalf("a log of %d bytes: %v", len(log), err)
	}
	db := lookInto(t, path)
	defer db.Close()
	stored := storedIn(t, db)
	testenv.Equal(t, store.Close(), nil, "Close with a log of", len(log), "bytes")
	return stored
}
