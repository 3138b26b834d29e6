package audit_test

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/prove/internal/audit"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/sqlite"
)

func TestEachChangeOfARowIsWrittenDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.db")
	store, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := migrations.Up(t.Context(), migrations.SQLite, store.DB()); err != nil {
		t.Fatal(err)
	}
	log, err := audit.SQLite(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	old := time.Now().Add(-2 * time.Hour).UnixNano()
	expired := history.Key{Name: "seeded", Key: "key"}
	seeded := map[history.Key]limiter.Row{expired: {FullAt: old, At: old, Period: 1000, Limit: 5}}
	if err := log.Seed(t.Context(), seeded); err != nil {
		t.Fatal(err)
	}
	want := map[history.Key]limiter.Row{}
	var changes []history.Transition
	for _, p := range []limiter.Policy{limiter.PerHour(3), limiter.FixedWindow{Limit: 3, Window: time.Hour}} {
		_, window := p.(limiter.FixedWindow)
		k := history.Key{Window: window, Name: "taken", Key: "key"}
		for range 4 { // one too many
			s, err := store.Do(t.Context(), limiter.Op{Kind: limiter.OpTake, Name: k.Name, Key: k.Key, Policy: p, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			if s.Took {
				changes = append(changes, history.Transition{Key: k, Old: want[k], New: s.Row})
				want[k] = s.Row
			}
		}
	}
	if n, err := store.Sweep(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	changes = append(changes, history.Transition{Key: expired, Old: seeded[expired]})
	got, left, err := log.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(changes) || !maps.Equal(left, want) {
		t.Fatalf("%d changes are written down, of %d; left are %+v, want %+v", len(got), len(changes), left, want)
	}
	for i, c := range changes {
		if got[i] != c {
			t.Errorf("change %d is %+v, want %+v", i, got[i], c)
		}
	}
	if err := log.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, left, err := log.Read(t.Context()); len(got)+len(left) > 0 || err != nil {
		t.Errorf("after Clear: %v, %v, %v", got, left, err)
	}
}
