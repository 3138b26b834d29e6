package prove_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/prove/internal/campaign"
)

// recovery is how long after the end of a fault everything must work again.
const recovery = 5 * time.Second

// migrate makes the tables.
func migrate(t testing.TB, dsn string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Up(context.Background(), migrations.Postgres, db); err != nil {
		t.Fatal(err)
	}
}

// keyOf is a key that no other round has.
func keyOf(seed uint64) string { return fmt.Sprintf("key %016x", seed) }

// pause waits for up to most, as the round's chance has it.
func pause(ctx context.Context, r *campaign.Round, most time.Duration) {
	wait(ctx, time.Duration(r.Rand.Int64N(int64(most))))
}
