package prove_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/sqlite"
)

// leaversARound is how many takes there are in a round, each of a key of its own.
const leaversARound = 5000

// Callers leave at any time. What each was told agrees with what it was charged: granted is
// charged once, canceled not at all, and of what is unknown nobody says more.
func TestSQLiteCallersWhoLeave(t *testing.T) {
	for _, kind := range []struct {
		name    string
		callers int
		unknown bool // whether an outcome may be
		open    func(t testing.TB, path string) *sqlite.Store
	}{
		{"callers who leave SQLite, one at a time", 1, false, openFile},
		{"callers who leave SQLite", 16, true, openFile},
		{"callers who leave a pool of SQLite", 16, true, openOwn},
	} {
		t.Run(kind.name, func(t *testing.T) {
			sizes := campaign.Sizes{CI: 1, Nightly: 15, Release: 70} // of three kinds: 1,050,000 takes
			proof.Rounds(t, kind.name, sizes, func(t *testing.T, r *campaign.Round) {
				path := newFile(t)
				store := kind.open(t, path)
				told := leave(t, r, store, kind.callers)
				if err := store.Close(); err != nil { // what is under way ends before
					t.Error(err)
				}
				db := lookInto(t, path)
				defer db.Close()
				agree(t, r, told, storedIn(t, db), kind.unknown)
			})
		})
	}
}

func openOwn(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_busy_timeout=20&_journal_mode=WAL&_synchronous=OFF")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { db.Close() })
	store, err := sqlite.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// leave has callers take, each of whom leaves some time later, and returns what they were
// told.
func leave(t *testing.T, r *campaign.Round, store limiter.Store, callers int) []error {
	t.Helper()
	l, err := limiter.New(store, kinds.Lasting[0].Name, kinds.Lasting[0].Policy, limiter.WithTimeout(waitLimit))
	if err != nil {
		t.Fatal(err)
	}
	told := make([]error, leaversARound)
	var all sync.WaitGroup
	for w := range callers {
		own := rand.New(rand.NewPCG(r.Seed, uint64(w)))
		all.Go(func() {
			for i := w; i < len(told); i += callers {
				ctx, cancel := context.WithCancel(t.Context())
				if own.IntN(16) == 0 {
					cancel() // at once
				}
				// Otherwise after up to 16 ms, and as often from 2 to 4 µs as from 8 to 16 ms.
				timer := time.AfterFunc(time.Duration(own.Int64N(int64(time.Microsecond)<<own.IntN(15))), cancel)
				_, told[i] = l.Allow(ctx, strconv.Itoa(i))
				timer.Stop()
				cancel()
			}
		})
	}
	all.Wait()
	return told
}

// agree compares what each caller was told with what its key was charged.
func agree(t *testing.T, r *campaign.Round, told []error, stored map[ledger.ID]int64, mayBeUnknown bool) {
	t.Helper()
	var wrong, lost, double int64
	for i, err := range told {
		charged := stored[ledger.ID{Kind: limiter.KindBucket, Limiter: kinds.Lasting[0].Name, Key: strconv.Itoa(i)}]
		switch {
		case err == nil:
			lost += max(0, 1-charged)
			double += max(0, charged-1)
		case !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, limiter.ErrOutcomeUnknown) && !mayBeUnknown:
			wrong++
			t.Log(err)
		case errors.Is(err, limiter.ErrOutcomeUnknown):
			r.Count(campaign.Unknown, 1)
			r.Count("charged of unknown outcomes", charged)
			double += max(0, charged-1)
		default:
			r.Count("callers who left in time", 1)
			double += charged
		}
	}
	r.Count(campaign.Operations, int64(len(told)))
	r.None("answers of a wrong class", wrong)
	r.None(campaign.LostTakes, lost)
	r.None(campaign.DoubleCharges, double)
}
