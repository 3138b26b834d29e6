package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// Callers leave at any time, alone and while others are there. What each is told agrees with what it was
// charged.
func TestFaultsOfCallersWhoLeave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		store   *sqlite.Store
		callers int
		unknown bool // whether an outcome may be
	}{
		{"alone", openFile(t), 1, false}, // a statement that has begun goes to its end
		{"file", openFile(t), 16, true},
		{"memory", openPath(t, ":memory:"), 16, true},
		{"own pool", newStore(t, openPool(t, "&_journal_mode=WAL")), 16, true},
		{"own pool without WAL", newStore(t, openPool(t, "")), 16, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const takes = 1500
			var all sync.WaitGroup
			answers := make([]error, takes)
			for w := range c.callers {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(w), 0))
					for i := w; i < takes; i += c.callers {
						answers[i] = leave(t, c.store, fmt.Sprint(i), soon(random))
					}
				})
			}
			all.Wait()
			checkAnswers(t, c.store, answers, c.unknown)
		})
	}
}

// soon is up to 16 ms, and as often from 2 to 4 µs as from 8 to 16 ms: a machine may be fast or slow. Now
// and then it is at once.
func soon(random *rand.Rand) time.Duration {
	if random.IntN(16) == 0 {
		return 0
	}
	return time.Duration(random.Int64N(int64(time.Microsecond) << random.IntN(15)))
}

// leave takes one of a key, and leaves after a while.
func leave(t *testing.T, store *sqlite.Store, key string, after time.Duration) error {
	op := takeOf("l", key, slow, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after == 0 {
		cancel()
	}
	defer time.AfterFunc(after, cancel).Stop()
	s, err := store.Do(ctx, op)
	if err == nil && !s.Took {
		t.Errorf("a take of a fresh key: %+v, want it granted", s)
	}
	return err
}

// checkAnswers compares what was answered with what is stored, when nobody is there any more.
func checkAnswers(t *testing.T, store *sqlite.Store, answers []error, mayBeUnknown bool) {
	t.Helper()
	if _, err := store.Do(t.Context(), takeOf("l", "last", slow, 1)); err != nil { // after all others
		t.Fatal(err)
	}
	var allowed, gone, unknown, charged int
	for i, err := range answers {
		op := takeOf("l", fmt.Sprint(i), slow, 1)
		n := used(read(t, store, op), op)
		switch {
		case err == nil:
			allowed++
			if n != 1 {
				t.Errorf("a take that was granted was charged %d times", n)
			}
		case !errors.Is(err, limiter.ErrCanceled):
			t.Errorf("a take whose caller left: %v, want ErrCanceled", err)
		case errors.Is(err, limiter.ErrOutcomeUnknown) && mayBeUnknown:
			unknown++
			charged += int(n)
			if n > 1 {
				t.Errorf("a take of unknown outcome was charged %d times", n)
			}
		default:
			gone++
			if n != 0 {
				t.Errorf("a take was charged %d times, and said not to have been applied: %v", n, err)
			}
		}
	}
	t.Logf("%d granted, %d left in time, %d of unknown outcome, of which %d were charged", allowed, gone, unknown, charged)
	if allowed == 0 || gone == 0 {
		t.Error("the callers left too late or too early to show anything")
	}
}
