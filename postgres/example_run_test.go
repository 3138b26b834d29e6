package postgres_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
)

// docs/recipes.md shows newStore to users who test their own code. This test needs an image
// by name, because dbtest starts all other servers.
func TestTheRecipesStoreForTestsWorks(t *testing.T) {
	image, _, _ := strings.Cut(os.Getenv("LIMITER_TEST_POSTGRES_IMAGES"), ",")
	if image == "" {
		t.Skip("LIMITER_TEST_POSTGRES_IMAGES names no image")
	}
	decidesOnce(t, newStore(t, image))
}

func decidesOnce(t *testing.T, store *postgres.Store) {
	t.Helper()
	l := newLimiter(t, store, limiter.PerDay(1))
	for _, want := range []bool{true, false} {
		if res, err := l.Allow(t.Context(), "alice"); err != nil || res.Allowed != want {
			t.Errorf("Allow = %+v, %v; want Allowed %t", res, err, want)
		}
	}
}

// The store uses a schema of its own, and the schema is gone after the test.
func TestTheRecipesStoreOnAServerWorks(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		const schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'test\\_%'"
		before := query[int](t, d, schemas)
		t.Run("in use", func(t *testing.T) { decidesOnce(t, newServerStore(t, d.dsn)) })
		testenv.Equal(t, query[int](t, d, schemas), before, "schemas after the test")
	})
}

func TestPlaceOrder(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		must(t, migrations.Up(bounded(t), migrations.Postgres, d.db))
		// Two orders of one number fail at the commit, after the charge.
		d.exec(t, "CREATE TABLE orders (number int UNIQUE DEFERRABLE INITIALLY DEFERRED, customer text)")
		p := pool(t, d.dsn, few(2))
		l := newLimiter(t, storeOn(t, p, "public"), limiter.PerDay(2))
		orders := func() int { return query[int](t, d, "SELECT count(*) FROM orders") }
		duplicate := func(err error) bool {
			server, ok := errors.AsType[*pgconn.PgError](err)
			return ok && server.Code == "23505"
		}
		for _, step := range []struct {
			name      string
			number    int
			is        func(error) bool
			orders    int
			remaining int64
		}{
			{"the first order", 1, func(err error) bool { return err == nil }, 1, 1},
			{"an order that the commit rolls back", 1, duplicate, 1, 1},
			{"the second order", 2, func(err error) bool { return err == nil }, 2, 0},
			{"an order too many", 3, func(err error) bool { return errors.Is(err, errTooManyOrders) }, 2, 0},
		} {
			if err := placeOrder(bounded(t), p, l, step.number, "alice"); !step.is(err) {
				t.Errorf("%s: placeOrder = %v", step.name, err)
			}
			testenv.Equal(t, orders(), step.orders, "orders after", step.name)
			if res, err := l.Peek(bounded(t), "alice"); err != nil || res.Remaining != step.remaining {
				t.Errorf("after %s Remaining is %d, want %d (%v)", step.name, res.Remaining, step.remaining, err)
			}
		}
	})
}
