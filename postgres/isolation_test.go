package postgres_test

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
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
			exact(t, stores, rowtest.Lasting["bucket"], 100)
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
		exact(t, stores, rowtest.Lasting["window"], 100)
	})
}

// cutter makes connections that, once it is armed, pass a COMMIT on, wait for the server's answer, and
// break instead of passing it back.
type cutter struct {
	armed atomic.Bool
	cuts  atomic.Int64
}

// in has a pool make such connections.
func (p *cutter) in(change func(*pgxpool.Config)) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		change(c)
		wrap(c.ConnConfig, func(conn net.Conn) net.Conn { return &committing{Conn: conn, cutter: p} })
	}
}

type committing struct {
	net.Conn
	*cutter
	cut atomic.Bool
}

func (c *committing) Write(b []byte) (int, error) {
	if c.armed.Load() && bytes.Contains(b, []byte("commit\x00")) {
		c.cut.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *committing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil || !c.cut.Load() {
		return n, err
	}
	c.cuts.Add(1)
	_ = c.Close()
	return 0, io.EOF
}

// COMMIT goes in the simple protocol, after which pgx calls any broken
// connection safe to retry.
func TestCommitWhoseAnswerIsLostHasAnUnknownOutcome(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		p := &cutter{}
		store := d.store(t, schema, p.in(isolated("repeatable read")))
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
