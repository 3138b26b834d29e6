package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
)

// rotating is a role whose password changes.
type rotating struct {
	*database
	name, dsn string
	mu        sync.Mutex
	password  string
	asked     int
	err       error
}

func newRotating(t *testing.T, d *database, schema string) *rotating {
	t.Helper()
	r := &rotating{database: d, password: "hunter2"} // that of role
	r.name, r.dsn = d.role(t)
	d.exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+r.name)
	d.exec(t, "GRANT SELECT, INSERT, UPDATE ON "+allTables(schema)+" TO "+r.name)
	return r
}

// rotate makes all passwords until now invalid for new connections.
func (r *rotating) rotate(t *testing.T, password string) {
	t.Helper()
	r.exec(t, fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", r.name, password))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.password = password
}

// token is the identity service.
func (r *rotating) token(context.Context, *pgx.ConnConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.password, r.err
}

func TestPasswordThatChanges(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		t.Run("is asked for by BeforeConnect at each connection", func(t *testing.T) {
			r := newRotating(t, d, schema)
			p, err := withTokens(t.Context(), r.dsn+"&password=none", r.token)
			must(t, err)
			defer p.Close()
			store := storeOn(t, p, schema)
			if s := do(t, store, take(slow(3), "k", 1)); !s.Took || r.asked != 1 {
				t.Errorf("first take: %+v, asked %d times; want a grant, and once", s, r.asked)
			}
			r.rotate(t, "second")
			if s := do(t, store, take(slow(3), "k", 1)); !s.Took || r.asked != 1 {
				t.Errorf("on the same connection: %+v, asked %d times; want a grant, and once", s, r.asked)
			}
			p.Reset() // as when connections reach pool_max_conn_lifetime
			if s := do(t, store, take(slow(3), "k", 1)); !s.Took || r.asked != 2 {
				t.Errorf("on a new connection: %+v, asked %d times; want a grant, and twice", s, r.asked)
			}
			r.err = errors.New("the identity service is down")
			p.Reset()
			_, err = store.Do(t.Context(), take(slow(3), secret, 1))
			wantError(t, err, limiter.ErrNotApplied)
			if !errors.Is(err, r.err) {
				t.Errorf("%v does not wrap the error of the identity service", err)
			}
		})
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
