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

func TestOverrides(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for name, open := range openers {
		store := open(t)
		store.SetClock(func() time.Time { return now })
		for i, expires := range []any{now.UnixNano() + 1, now.UnixNano(), nil} {
			execute(t, store, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, period, note, expires_at)
				VALUES ('l', $1, 'window', $2, 1000000000, 'by Ann', $3)`, []byte{byte(i)}, i+1, expires)
		}
		list, err := store.Overrides(t.Context(), "l", 10)
		if err != nil || len(list) != 2 || list[0].Key != "\x00" || list[1].Key != "\x02" ||
			!list[0].ExpiresAt.Equal(now.Add(1)) || !list[1].ExpiresAt.IsZero() || list[1].Note != "by Ann" ||
			list[1].Policy != limiter.Policy(limiter.FixedWindow{Limit: 3, Window: time.Second}) {
			t.Errorf("%s: Overrides = %+v, %v; want the first and the third", name, list, err)
		}
	}
}

func TestErrorsOfOverrides(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	want := func(store *sqlite.Store, class error, limit int, advice string) {
		t.Helper()
		_, err := store.Overrides(t.Context(), "l", limit)
		if !errors.Is(err, class) || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Overrides: %v, want %v with %q and no key", err, class, advice)
		}
	}
	want(store, limiter.ErrInvalid, 0, "at least 1")
	execute(t, store, `DROP TABLE limiter_overrides`)
	want(store, limiter.ErrMisconfigured, 1, "migrations.Up")
	// Without the CHECK of the migration.
	execute(t, store, `CREATE TABLE limiter_overrides (limiter TEXT, key BLOB, kind TEXT, capacity INTEGER, refill INTEGER, period INTEGER, note TEXT, expires_at INTEGER);
		INSERT INTO limiter_overrides (limiter, key, kind, capacity, period) VALUES ('l', 'secret', 'later', 1, 1000000)`)
	want(store, limiter.ErrMisconfigured, 1, `"later"`)

	other := openOnly(t, filepath.Join(t.TempDir(), "closed.db"))
	must(t, other.Close())
	want(other, limiter.ErrNotApplied, 1, "closed")
}
