package prove_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
)

// If a file is moved away, every process that has it open notices that, and none makes a new file.
// When the file is back, no granted take is lost.
func TestSQLiteFileAway(t *testing.T) {
	proof.Rounds(t, "files of SQLite away", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		told := ledger.New()
		takers := newTakers(t, path, r, told)
		pause(t.Context(), r, 100*time.Millisecond)
		back := takeAway(t, r, path)
		began := time.Now()
		takers.all(t, "miss the file", func(a *member) bool { return a.missed.Load() })
		r.Most("until a file was missed", time.Since(began))
		pause(t.Context(), r, 200*time.Millisecond)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("where the file was there is one now, %v", err)
		}
		back()
		began = time.Now()
		takers.all(t, "work again", func(a *member) bool { return !a.missed.Load() })
		r.Most("recovery", time.Since(began))
		pause(t.Context(), r, 50*time.Millisecond)
		takers.kill(t)
		db := lookInto(t, path)
		defer db.Close()
		judgeAll(t, r, told, told.Compare(storedIn(t, db)))
		intact(t, db)
	})
}

// If a file is removed for good, its grants are lost. For a moment the processes still grant takes in
// the removed file.
func TestSQLiteFileRemoved(t *testing.T) {
	proof.Rounds(t, "files of SQLite removed", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		told := ledger.New()
		takers := newTakers(t, path, r, told)
		if r.Number%2 == 0 { // else they are about to open the connections that they need
			pause(t.Context(), r, 100*time.Millisecond)
		}
		db := lookInto(t, path) // keeps what the path does not lead to any more
		defer db.Close()
		storedIn(t, db)
		before := takers.granted.Load()
		companions := r.Rand.IntN(2) == 0
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			if file == path || companions {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		began := time.Now()
		takers.all(t, "miss the file", func(a *member) bool { return a.missed.Load() })
		r.Most("until a file was missed", time.Since(began))
		after := takers.granted.Load()
		r.Count("takes granted in a removed file", after-before)
		pause(t.Context(), r, 100*time.Millisecond)
		if more := takers.granted.Load() - after; more > int64(len(takers.members)*takerWorkers) { // which were under way
			t.Errorf("%d takes were granted after the file was missed", more)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("where the file was there is one now, %v", err)
		}
		takers.kill(t)
		judgeAll(t, r, told, told.Compare(storedIn(t, db)))
	})
}

// takeAway moves a file, alone or with its companions. back moves it back.
func takeAway(t *testing.T, r *campaign.Round, path string) (back func()) {
	t.Helper()
	files := []string{path}
	switch r.Rand.IntN(3) {
	case 0:
		files = []string{path, path + "-wal", path + "-shm"}
	case 1:
		files = []string{filepath.Dir(path)}
	}
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		rename(f, f+".away")
	}
	return func() {
		for _, f := range files {
			rename(f+".away", f)
		}
	}
}

// takers are processes that take from one file.
type takers struct {
	members []*member
	granted atomic.Int64
}

type member struct {
	*taker
	missed atomic.Bool // its last answer says that the file is missing
}

func newTakers(t *testing.T, path string, r *campaign.Round, told *ledger.Ledger) *takers {
	t.Helper()
	h := &takers{}
	for range 2 {
		a := &member{}
		enter := into(told)
		a.taker = startTaker(t, path, r.Rand.Uint64(), func(q request, result limiter.Result, err error) {
			missed := errors.Is(err, limiter.ErrMisconfigured)
			if missed || err == nil {
				a.missed.Store(missed)
			}
			if result.Allowed {
				h.granted.Add(1)
			}
			if !missed {
				enter(q, result, err)
			}
		})
		h.members = append(h.members, a)
	}
	for _, a := range h.members {
		<-a.first
	}
	return h
}

// all waits until a condition holds for all processes.
func (h *takers) all(t *testing.T, what string, is func(*member) bool) {
	t.Helper()
	for began := time.Now(); ; wait(t.Context(), time.Millisecond) {
		n := 0
		for _, a := range h.members {
			if is(a) {
				n++
			}
		}
		if n == len(h.members) {
			return
		}
		if took := time.Since(began); took > recovery {
			t.Fatal(fmt.Sprint(n, " of ", len(h.members), " processes ", what, " after ", took))
		}
	}
}

func (h *takers) kill(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, a := range h.members {
		all.Go(func() { a.taker.kill(t, 0, false) })
	}
	all.Wait()
}
