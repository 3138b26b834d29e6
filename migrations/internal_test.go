package migrations

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	_ "modernc.org/sqlite"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

func openFile(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "limiter.db"))
	testenv.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// From makes Up, Down and Status take the migrations of files.
func From(files fs.FS) Option {
	return func(c *config) error {
		c.source = files
		return nil
	}
}

func TestVersionStore(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	store, err := newVersionStore(config{dialect: SQLite})
	testenv.Must(t, err)
	one := database.InsertRequest{Version: 1}
	testenv.Must(t, store.Insert(t.Context(), db, one))
	testenv.Must(t, store.drop(t.Context(), db)) // must not: a version is recorded
	testenv.ErrorIs(t, store.Insert(t.Context(), db, one), errRaced, "second Insert")
	testenv.Must(t, store.Delete(t.Context(), db, 1))
	testenv.ErrorIs(t, store.Delete(t.Context(), db, 1), errRaced, "second Delete")
	if state, err := store.applied(t.Context(), db); err != nil || state != "versions 0" {
		t.Errorf("applied: %q, %v; want versions 0", state, err)
	}
}

func TestGoMigrationsOfTheApplication(t *testing.T) {
	// Not in parallel: goose's registry is a variable, which every migration reads.
	theirs := func(context.Context, *sql.Tx) error { return errors.New("somebody else's migration ran") }
	goose.AddNamedMigrationContext("00002_theirs.go", theirs, theirs)
	t.Cleanup(goose.ResetGlobalMigrations)
	db := openFile(t)
	testenv.Must(t, Up(t.Context(), SQLite, db))
	if list, err := Status(t.Context(), SQLite, db); err != nil || len(list) != 1 {
		t.Errorf("Status: %v, %v; want one migration", list, err)
	}
	testenv.Must(t, Down(t.Context(), SQLite, db))
}

func TestListsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, from := range []any{int64(1), nil, "1", "{1", "{{1},{2}}"} {
		testenv.ErrorIs(t, (listField{}).Scan(from), limiter.ErrMisconfigured, "Scan", from)
	}
}
