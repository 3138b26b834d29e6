package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// A decision over several limits adds a row. That must not forget an expired row that it takes from.
func TestDoAllOnAnExpiredEntry(t *testing.T) {
	t.Parallel()
	now := time.Unix(2_000_000_000, 0)
	var sh *shard
	s := New(WithClock(func() time.Time {
		if sh != nil && sh.mu.TryLock() {
			t.Fatal("DoAll reads the clock without the lock of its shard")
		}
		return now
	}))
	old := limiter.Op{Kind: limiter.OpTake, Name: "w", Key: "k", Policy: limiter.FixedWindow{Limit: 1, Window: time.Hour}, Cost: 1}
	for i := 0; hashOf(&old)%shards == 0; i++ { // not shard 0, which wrong indexes would lock
		old.Key = strconv.Itoa(i)
	}
	take := func(ops ...limiter.Op) (took bool) {
		t.Helper()
		states, err := s.DoAll(t.Context(), ops)
		testenv.Must(t, err)
		return states[len(states)-1].Took
	}
	if !take(old) {
		t.Fatal("the first take is refused")
	}
	// Fill the entry's shard until the next row makes it forget expired ones.
	sh = &s.shards[hashOf(&old)%shards]
	added := limiter.Op{Kind: limiter.OpTake, Name: "b", Policy: limiter.PerHour(1), Cost: 1}
	for i := 0; ; i++ {
		if added.Key = strconv.Itoa(i); hashOf(&added)%shards != hashOf(&old)%shards {
			continue
		}
		if sh.held == sh.tidyAt-1 {
			break
		}
		take(added)
	}
	now = now.Add(3 * time.Hour)
	if !take(added, old) {
		t.Fatal("an expired key is refused")
	}
	if take(old) {
		t.Error("the key passes again at once; its take was lost")
	}
	testenv.Equal(t, sh.held, 2, "rows of the shard, those of the two claims")
}
