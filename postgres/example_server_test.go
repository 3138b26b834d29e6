package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
)

// newServerStore returns a store in a schema of its own, which it removes when the test ends.
func newServerStore(t *testing.T, dsn string) *postgres.Store {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("test_%d", time.Now().UnixNano())
	t.Cleanup(func() {
		_, _ = db.Exec("DROP SCHEMA IF EXISTS " + schema + " CASCADE")
		db.Close()
	})
	if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), migrations.Postgres, db, migrations.WithSchema(schema)); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(dsn, postgres.WithSchema(schema))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
