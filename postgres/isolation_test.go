package postgres_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/postgres"
)

func isolated(level string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
	}
}

func TestPoolWhoseTransactionsAreStricterByDefaultIsExact(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, level := range []string{"repeatable read", "serializable"} {
			schema := d.schema(t)
			d.seedExpired(t, schema, 100)
			stores := [2]*postgres.Store{
				d.store(t, schema, isolated(level)), d.store(t, schema, isolated(level)),
			}
			exact(t, stores, kinds["bucket"], 100)
			for _, op := range []limiter.Op{
				{Kind: limiter.OpLook}, {Kind: limiter.OpRefund, Cost: 1}, {Kind: limiter.OpReset},
			} {
				op.Name, op.Key, op.Policy = "test", "hot", slow(100)
				each(8, func(worker int) {
					if _, err := stores[worker%2].Do(t.Context(), op); err != nil {
						t.Errorf("%s: operation %d: %v", level, op.Kind, err)
					}
				})
			}
		}
	})
}

func TestPoolWhoseTransactionsAreStricterIsAskedForReadCommittedAfterTheFirstConflict(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, level := range []string{"repeatable read", "serializable"} {
			schema := d.schema(t)
			d.record(t, schema, "transaction_isolation")
			store := d.store(t, schema, isolated(level))
			do(t, store, take(slow(5), "k", 1))
			tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
			do(t, storeOn(t, tx, schema), take(slow(5), "k", 1))
			answer := d.send(bounded(t), t, store, take(slow(5), "k", 1))
			end(t, tx, true) // the other's snapshot is out of date
			if _, err := answer(); err != nil {
				t.Error(err)
			}
			do(t, store, take(slow(5), "k", 1))
			got := query[string](t, d, "SELECT string_agg(mode, ', ' ORDER BY n) FROM "+schema+".commits")
			if want := level + ", read committed, read committed, read committed"; got != want {
				t.Errorf("takes were committed in %s; want %s", got, want)
			}
		}
	})
}

func TestDatabaseWhoseTransactionsAreStricterByDefaultIsExactThroughPgbouncer(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		name := query[string](t, d, "SELECT current_database()::text")
		d.exec(t, "ALTER DATABASE "+name+" SET default_transaction_isolation = 'serializable'")
		behind := mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, d.dsn))
		stores := [2]*postgres.Store{d.store(t, schema, nil), storeOn(t, behind, schema)}
		exact(t, stores, kinds["window"], 100)
	})
}

// cutter is a proxy that, once armed, passes a COMMIT on, waits for the server's
// answer, and breaks the connection in place of passing it back.
type cutter struct {
	armed atomic.Bool
	cuts  atomic.Int64
}

// listen starts the proxy in front of the server of dsn.
func (p *cutter) listen(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	u.Host = accept(t, func(client net.Conn) { p.serve(client, server) })
	return u.String()
}

func (p *cutter) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var cut atomic.Bool
	go func() {
		defer server.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if p.armed.Load() && bytes.Contains(buffer[:n], []byte("commit\x00")) {
				cut.Store(true)
			}
			if _, failed := server.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	}()
	_, _ = io.Copy(writer(func(b []byte) (int, error) {
		if cut.Load() {
			p.cuts.Add(1)
			return 0, errors.New("cut")
		}
		return client.Write(b)
	}), server)
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// COMMIT goes in the simple protocol, after which pgx calls any broken
// connection safe to retry.
func TestCommitWhoseAnswerIsLostHasAnUnknownOutcome(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		p := &cutter{}
		store := storeOn(t, pool(t, p.listen(t, d.dsn), isolated("repeatable read")), schema)
		policy := slow(1000)
		// Takes of one key at once, until one fails and the store asks for READ COMMITTED.
		each(16, func(int) {
			for range 10 {
				if _, err := store.Do(t.Context(), take(policy, "hot", 1)); err != nil {
					t.Errorf("Do: %v", err)
				}
			}
		})
		p.armed.Store(true)
		_, err := store.Do(t.Context(), take(policy, secret, 1))
		p.armed.Store(false)
		if p.cuts.Load() == 0 {
			t.Fatalf("no COMMIT was cut: the store does not ask for READ COMMITTED (%v)", err)
		}
		wantError(t, err, limiter.ErrOutcomeUnknown)
		if s := do(t, store, look(policy, secret)); s.Row.FullAt == 0 {
			t.Error("the take was not carried out; this test proves nothing")
		}
	})
}
