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

// A file that is gone while processes have it open is missed by all of them, and made anew
// by none. When it is back, nothing that they granted is lost.
func TestAFileThatIsAwayIsMissedAndNothingIsLost(t *testing.T) {
	proof.Rounds(t, "files of SQLite away", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		told := ledger.New()
		herd := newHerd(t, path, r, told)
		pause(t.Context(), r, 100*time.Millisecond)
		back := takeAway(t, r, path)
		began := time.Now()
		herd.all(t, "miss the file", func(a *animal) bool { return a.missed.Load() })
		r.Most("until a file was missed", time.Since(began))
		pause(t.Context(), r, 200*time.Millisecond)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("where the file was there is one now, %v", err)
		}
		back()
		began = time.Now()
		herd.all(t, "work again", func(a *animal) bool { return !a.missed.Load() })
		r.Most("recovery", time.Since(began))
		pause(t.Context(), r, 50*time.Millisecond)
		herd.kill(t)
		db := lookInto(t, path)
		defer db.Close()
		judgeFile(t, r, told.Compare(storedIn(t, db)), told)
		intact(t, db)
	})
}

// A file that is gone for good takes along what was granted in it, and for a moment more is
// granted in it than the next one knows of.
func TestAFileThatIsRemovedIsMissed(t *testing.T) {
	proof.Rounds(t, "files of SQLite removed", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		told := ledger.New()
		herd := newHerd(t, path, r, told)
		if r.Number%2 == 0 { // else they are about to open the connections that they need
			pause(t.Context(), r, 100*time.Millisecond)
		}
		db := lookInto(t, path) // keeps what the path does not lead to any more
		defer db.Close()
		storedIn(t, db)
		before := herd.granted.Load()
		companions := r.Rand.IntN(2) == 0
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			if file == path || companions {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		began := time.Now()
		herd.all(t, "miss the file", func(a *animal) bool { return a.missed.Load() })
		r.Most("until a file was missed", time.Since(began))
		after := herd.granted.Load()
		r.Count("takes granted in a removed file", after-before)
		pause(t.Context(), r, 100*time.Millisecond)
		if more := herd.granted.Load() - after; more > int64(len(herd.animals)*preyWorkers) { // which were under way
			t.Errorf("%d takes were granted after the file was missed", more)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("where the file was there is one now, %v", err)
		}
		herd.kill(t)
		judgeFile(t, r, told.Compare(storedIn(t, db)), told)
	})
}

// takeAway moves a file, alone or with what belongs to it, and returns what brings it back.
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

// herd is processes that take from one file.
type herd struct {
	animals []*animal
	granted atomic.Int64
}

type animal struct {
	*prey
	missed atomic.Bool // the last that it said of the file is that it is not there
}

func newHerd(t *testing.T, path string, r *campaign.Round, told *ledger.Ledger) *herd {
	t.Helper()
	h := &herd{}
	for range 2 {
		a := &animal{}
		enter := into(told)
		a.prey = release(t, path, r.Rand.Uint64(), func(w want, result limiter.Result, err error) {
			missed := errors.Is(err, limiter.ErrMisconfigured)
			if missed || err == nil {
				a.missed.Store(missed)
			}
			if result.Allowed {
				h.granted.Add(1)
			}
			if !missed {
				enter(w, result, err)
			}
		})
		h.animals = append(h.animals, a)
	}
	for _, a := range h.animals {
		<-a.first
	}
	return h
}

// all waits until something is true of all processes.
func (h *herd) all(t *testing.T, what string, is func(*animal) bool) {
	t.Helper()
	for began := time.Now(); ; wait(t.Context(), time.Millisecond) {
		n := 0
		for _, a := range h.animals {
			if is(a) {
				n++
			}
		}
		if n == len(h.animals) {
			return
		}
		if took := time.Since(began); took > recovery {
			t.Fatal(fmt.Sprint(n, " of ", len(h.animals), " processes ", what, " after ", took))
		}
	}
}

func (h *herd) kill(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, a := range h.animals {
		all.Go(func() { a.prey.kill(t, 0, false) })
	}
	all.Wait()
}
