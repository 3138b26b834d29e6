package postgres_test

import (
	"testing"

	"github.com/testcontainers/testcontainers-go"
	tcpostgres "github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/sqlimit/limiter/postgres"
)

// newStore returns a store in a PostgreSQL container, which the end of the test removes.
func newStore(t *testing.T, image string) *postgres.Store {
	container, err := tcpostgres.Run(t.Context(), image, tcpostgres.BasicWaitStrategies())
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	dsn, err := container.ConnectionString(t.Context(), "sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	return newServerStore(t, dsn)
}
