package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

func TestOverridesAreReadOnEveryPoolAndExpireByTheProcessesClock(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for name, store := range map[string]*sqlite.Store{
		"file":     openFile(t),
		"memory":   openPath(t, ":memory:"),
		"own pool": newStore(t, openPool(t, "")),
	} {
		store.SetClock(func() time.Time { return now })
		for i, expires := range []any{now.UnixNano() + 1, now.UnixNano(), nil} {
			if _, err := store.DB().ExecContext(t.Context(), `INSERT INTO limiter_overrides (limiter, key, kind, capacity, period, note, expires_at)
				VALUES ('l', $1, 'window', $2, 1000000000, 'by Ann', $3)`, []byte{byte(i)}, i+1, expires); err != nil {
				t.Fatal(err)
			}
		}
		list, err := store.Overrides(t.Context(), "l", 10)
		if err != nil || len(list) != 2 || list[0].Key != "\x00" || list[1].Key != "\x02" ||
			!list[0].ExpiresAt.Equal(now.Add(1)) || !list[1].ExpiresAt.IsZero() || list[1].Note != "by Ann" ||
			list[1].Policy != limiter.Policy(limiter.FixedWindow{Limit: 3, Window: time.Second}) {
			t.Errorf("%s: Overrides = %+v, %v; want the first and the third", name, list, err)
		}
	}
}

// Overrides are read beside a writer, which may hold the lock for long.
func TestOverridesAreReadWhileAnotherConnectionWrites(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	lock(t, store)
	if _, err := store.Overrides(t.Context(), "l", 10); err != nil {
		t.Errorf("Overrides: %v", err)
	}
}

func TestErrorsOfOverrides(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	want := func(class error, limit int, advice string) {
		t.Helper()
		_, err := store.Overrides(t.Context(), "l", limit)
		if !errors.Is(err, class) || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Overrides: %v, want %v with %q and no key", err, class, advice)
		}
	}
	run := func(statement string) {
		t.Helper()
		if _, err := store.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	want(limiter.ErrInvalid, 0, "at least 1")
	run(`DROP TABLE limiter_overrides`)
	want(limiter.ErrMisconfigured, 1, "migrations.Up")
	// Without the CHECK of the migration.
	run(`CREATE TABLE limiter_overrides (limiter TEXT, key BLOB, kind TEXT, capacity INTEGER, refill INTEGER, period INTEGER, note TEXT, expires_at INTEGER)`)
	run(`INSERT INTO limiter_overrides (limiter, key, kind, capacity, period) VALUES ('l', 'secret', 'later', 1, 1000000)`)
	want(limiter.ErrMisconfigured, 1, `"later"`)

	other, err := sqlite.Open(filepath.Join(t.TempDir(), "closed.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Overrides(t.Context(), "l", 1); !errors.Is(err, limiter.ErrNotApplied) {
		t.Errorf("Overrides of a closed store: %v, want ErrNotApplied", err)
	}
}
