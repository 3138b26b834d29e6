package prove_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/prove/internal/audit"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/sqlite"
)

func TestHistoriesOnSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
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
	proof.Rounds(t, "histories on SQLite", campaign.Sizes{CI: 1, Nightly: 20, Release: 130}, func(t *testing.T, r *campaign.Round) {
		historyRound(t, r, log, time.Now(), store, worker{Path: path, Options: busy}, worker{Path: path, Options: busy})
	})
}
