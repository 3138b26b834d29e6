package prove_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
)

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
	if err := store.Close(); err != nil {
		t.Errorf("a log of %d bytes: %v", len(log), err)
	}
	return stored
}
