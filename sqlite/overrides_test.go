package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

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
	want(store, limiter.ErrMisconfigured, 1, "migrations.Up(ctx, migrations.SQLite, store.DB()), "+
		"or goose: see https://github.com/sqlimit/limiter/blob/main/docs/operations.md#create-the-tables")
	// Without the CHECK of the migration.
	execute(t, store, `CREATE TABLE limiter_overrides (limiter TEXT, key BLOB, kind TEXT, capacity INTEGER, refill INTEGER, period INTEGER, note TEXT, expires_at INTEGER);
		INSERT INTO limiter_overrides (limiter, key, kind, capacity, period) VALUES ('l', 'secret', 'later', 1, 1000000)`)
	want(store, limiter.ErrMisconfigured, 1, `"later"`)

	other := openOnly(t, filepath.Join(t.TempDir(), "closed.db"))
	must(t, other.Close())
	want(other, limiter.ErrNotApplied, 1, "closed")
}
