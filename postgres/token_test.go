package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
)

func TestPasswordThatChanges(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		role, dsn := d.role(t)
		d.exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
		d.exec(t, "GRANT SELECT, INSERT, UPDATE ON "+allTables(schema)+" TO "+role)
		asked, password, failure := 0, "hunter2", error(nil)
		p, err := withTokens(t.Context(), dsn+"&password=none", func(context.Context, *pgx.ConnConfig) (string, error) {
			asked++
			return password, failure
		})
		must(t, err)
		defer p.Close()
		store := storeOn(t, p, schema)
		took := func(what string, want int) {
			t.Helper()
			if s := do(t, store, take(slow(3), "k", 1)); !s.Took || asked != want {
				t.Errorf("%s: %+v, asked %d times; want a grant, and %d", what, s, asked, want)
			}
		}
		took("the first take", 1)
		password = "second"
		d.exec(t, fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", role, password))
		took("a take on the same connection", 1)
		p.Reset() // as when connections reach pool_max_conn_lifetime
		took("a take on a new connection", 2)
		failure = errors.New("the identity service is down")
		p.Reset()
		_, err = store.Do(t.Context(), take(slow(3), secret, 1))
		wantError(t, err, limiter.ErrNotApplied)
		if !errors.Is(err, failure) {
			t.Errorf("%v does not wrap the error of the identity service", err)
		}
	})
}

func TestConnector(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		c := parse(t, d.dsn).ConnConfig
		dsn := fmt.Sprintf("user=%s password=%s dbname=%s sslmode=disable connect_timeout=3", c.User, c.Password, c.Database)
		dialed := 0
		p, err := withDialer(t.Context(), dsn, func(ctx context.Context) (net.Conn, error) {
			dialed++
			return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprint(c.Host, ":", c.Port))
		})
		must(t, err)
		defer p.Close()
		if s := do(t, storeOn(t, p, d.schema(t)), take(slow(3), "k", 1)); !s.Took || dialed != 1 {
			t.Errorf("%+v, dialed %d times; want a grant, and once", s, dialed)
		}
	})
}
