package prove_test

import (
	"context"
	"database/sql"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/sqlite"
)

const (
	sharers = 3 // processes, beside this one
	portion = 8 // keys of each kind
)

func init() { helpers["sharer"] = shareUntilRefused }

// What many processes admit of one file, by pools of their own or of the store's, is what
// the policy says: not one more, and not one less.
func TestSQLiteFileShared(t *testing.T) {
	proof.Rounds(t, "processes on one SQLite file", campaign.Sizes{CI: 2, Nightly: 60, Release: 200}, func(t *testing.T, r *campaign.Round) {
		path := newFile(t)
		admitted := map[ledger.ID]int64{}
		var got [sharers + 1]map[ledger.ID]int64 // the last is of this process
		var helpers []*exec.Cmd
		for i := range sharers {
			helpers = append(helpers, helper(t, "sharer", takerFile+"="+path, fmt.Sprint(takerSeed, "=", r.Rand.Uint64()), fmt.Sprint("LIMITER_PROVE_OWN=", i%2)))
		}
		ended := testenv.StartTogether(t, helpers, func(i int, out io.Reader) error { return gob.NewDecoder(out).Decode(&got[i]) })
		store := openFile(t, path)
		defer store.Close()
		var err error
		if got[sharers], err = share(t.Context(), store, r.Seed); err != nil {
			t.Fatal(err)
		}
		<-ended
		for _, of := range got {
			for id, n := range of {
				admitted[id] += n
			}
		}
		db := lookInto(t, path)
		defer db.Close()
		stored := storedIn(t, db)
		var over, under int64
		for _, kind := range kinds.Shared {
			for k := range portion {
				id := ledger.ID{Kind: limiter.KindOf(kind.Policy), Limiter: kind.Name, Key: strconv.Itoa(k)}
				over += max(0, admitted[id]-kinds.Limit(kind.Policy))
				under += max(0, kinds.Limit(kind.Policy)-min(admitted[id], stored[id]))
				r.Count(campaign.Operations, admitted[id])
			}
		}
		r.None(campaign.OverAdmitted, over)
		r.None("under-admitted", under)
	})
}

// shareUntilRefused takes when its input is closed, and tells how much it got of each key.
func shareUntilRefused() error {
	seed, err := strconv.ParseUint(os.Getenv(takerSeed), 10, 64)
	if err != nil {
		return err
	}
	path := os.Getenv(takerFile)
	store, err := sqlite.Open(path)
	if os.Getenv("LIMITER_PROVE_OWN") == "1" {
		var db *sql.DB
		if db, err = sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_busy_timeout=20&_synchronous=NORMAL"); err == nil {
			store, err = sqlite.New(db)
		}
	}
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Check(context.Background()); err != nil {
		return err
	}
	if err := testenv.AwaitStart(); err != nil {
		return err
	}
	got, err := share(context.Background(), store, seed)
	return errors.Join(err, gob.NewEncoder(os.Stdout).Encode(got))
}

// share takes from all keys until they refuse, and returns what it got.
func share(ctx context.Context, store limiter.Store, seed uint64) (map[ledger.ID]int64, error) {
	const callers = 8
	got := map[ledger.ID]int64{}
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	for i := range callers {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for _, n := range r.Perm(len(kinds.Shared) * portion) {
				kind := kinds.Shared[n%len(kinds.Shared)]
				key := strconv.Itoa(n / len(kinds.Shared))
				admitted, err := exhaust(ctx, store, kind.Name, kind.Policy, key)
				mu.Lock()
				got[ledger.ID{Kind: limiter.KindOf(kind.Policy), Limiter: kind.Name, Key: key}] += admitted
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return got, failed
}

func exhaust(ctx context.Context, store limiter.Store, name string, p limiter.Policy, key string) (n int64, err error) {
	l, err := limiter.New(store, name, p, limiter.WithTimeout(waitLimit))
	if err != nil {
		return 0, err
	}
	for {
		result, err := l.Allow(ctx, key)
		if err != nil || !result.Allowed {
			return n, err
		}
		n++
	}
}
