package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// record notes a setting at each write of the tables.
func (d *database) record(t *testing.T, schema, setting string) {
	t.Helper()
	d.exec(t, "CREATE TABLE "+schema+".commits (n bigserial, mode text)")
	d.trigger(t, schema, "record", "AFTER INSERT OR UPDATE",
		"INSERT INTO "+schema+".commits (mode) VALUES (current_setting('"+setting+"')); RETURN NULL;")
}

// conflict makes three takes of a key. The pool of the store must be stricter than READ COMMITTED: then its second
// take conflicts with another one, and the store asks for READ COMMITTED from now on.
func (d *database) conflict(t *testing.T, schema string, store *postgres.Store) {
	t.Helper()
	do(t, store, take(slow(9), "k", 1))
	tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
	do(t, storeOn(t, tx, schema), take(slow(9), "k", 1))
	answer := d.send(bounded(t), t, store, take(slow(9), "k", 1))
	end(t, tx, true) // the other's snapshot is out of date
	must(t, testenv.ErrorOf(answer()))
}

func TestReadCommitted(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, level := range []string{"repeatable read", "serializable"} {
			t.Run("is what a pool that is "+level+" asks for after a conflict", func(t *testing.T) {
				schema := d.schema(t)
				d.record(t, schema, "transaction_isolation")
				r := newTracer(false)
				store := d.store(t, schema, func(c *pgxpool.Config) {
					isolated(level)(c)
					r.in(c)
				})
				d.conflict(t, schema, store)
				do(t, store, take(slow(9), "k", 1))
				got := query[string](t, d, "SELECT string_agg(mode, ', ' ORDER BY n) FROM "+schema+".commits")
				testenv.Equal(t, got, level+", read committed, read committed, read committed", "the takes were committed in")
				r.fails = func(name string) bool { return strings.HasPrefix(name, "begin") }
				wantError(t, testenv.ErrorOf(store.Do(bounded(t), take(slow(9), "k", 1))), limiter.ErrNotApplied)
			})
		}
	})
}

// COMMIT goes in the simple protocol. If the connection breaks then, pgx calls the error safe to retry.
func TestLostCommitIsUnknown(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		direct := d.store(t, schema, nil)
		under := func(s *postgres.Store) limiter.Store { return postgres.RowLocked{Store: s} }
		for _, c := range []struct {
			name   string
			change func(*pgxpool.Config)
			conn   bool
			of     func(*postgres.Store) limiter.Store
		}{
			{"a pool that asks for READ COMMITTED", isolated("repeatable read"), false, func(s *postgres.Store) limiter.Store {
				d.conflict(t, schema, s)
				return s
			}},
			{"a take under the lock, on a pool", few(1), false, under},
			{"a take under the lock, on a serializable pool", isolated("serializable"), false, under},
			{"a take under the lock, on a connection", few(1), true, under},
			{"several limits in a transaction", few(1), false, func(s *postgres.Store) limiter.Store { return oneOfAll{postgres.SettledAll{Store: s}} }},
		} {
			for kind, policy := range map[string]limiter.Policy{"bucket": slow(9), "window": long(9)} {
				t.Run(c.name+", "+kind, func(t *testing.T) {
					var armed atomic.Bool
					opened := pool(t, d.dsn, func(config *pgxpool.Config) {
						c.change(config)
						wrap(config.ConnConfig, func(conn net.Conn) net.Conn {
							left := new(atomic.Int64)
							left.Store(-1)
							return &committing{cutting{conn, left}, &armed}
						})
					})
					var db postgres.DB = opened
					if c.conn {
						conn, err := opened.Acquire(bounded(t))
						must(t, err)
						t.Cleanup(conn.Release)
						db = conn
					}
					store, key := c.of(storeOn(t, db, schema)), secret+c.name
					do(t, direct, take(policy, key, 1))
					before := do(t, direct, look(policy, key)).Row
					armed.Store(true)
					_, err := store.Do(bounded(t), take(policy, key, 1))
					armed.Store(false)
					wantError(t, err, limiter.ErrOutcomeUnknown)
					if do(t, direct, look(policy, key)).Row == before {
						t.Errorf("the row is still %+v; the test needs a COMMIT that was applied", before)
					}
				})
			}
		}
	})
}

func TestAsyncCommitIsForTakesOnly(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.record(t, schema, "synchronous_commit")
		for takes, opts := range map[string][]postgres.Option{"on": nil, "off": {postgres.WithAsyncCommit()}} {
			for name, of := range rowtest.Lasting {
				d.exec(t, "TRUNCATE "+allTables(schema))
				p := pool(t, d.dsn, few(1))
				store := storeOn(t, p, schema, opts...)
				refused := "none"
				if name == "counting-window" {
					refused = takes
				}
				wants := []string{takes, takes, refused, "none", "on", "on"}
				for i, kind := range []limiter.OpKind{limiter.OpTake, limiter.OpTake, limiter.OpTake, limiter.OpLook, limiter.OpRefund, limiter.OpReset} {
					d.exec(t, "TRUNCATE "+schema+".commits")
					do(t, store, limiter.Op{Kind: kind, Name: "test", Key: "k", Policy: of(2), Cost: 1})
					in := query[string](t, d, "SELECT coalesce((SELECT mode FROM "+schema+".commits ORDER BY n DESC LIMIT 1), 'none')")
					var after string
					must(t, p.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&after))
					if in != wants[i] || after != "on" {
						t.Errorf("%s: operation %d committed with %s, want %s; the session is left with %s, want on", name, i, in, wants[i], after)
					}
				}
			}
		}
	})
}

// cutting is a connection that breaks after a number of bytes of a response, and not before the server
// has sent a later one.
type cutting struct {
	net.Conn
	left *atomic.Int64 // bytes; negative while the connection does not break
}

func (c *cutting) Read(b []byte) (int, error) {
	left := c.left.Load()
	n, err := c.Conn.Read(b)
	if left < 0 || err != nil || int64(n) <= left {
		if left >= 0 {
			c.left.Add(int64(-n))
		}
		return n, err
	}
	c.left.Store(0)
	_ = c.Close()
	return int(left), io.EOF
}

// committing is a connection that, once it is armed, passes a COMMIT on, waits for the server's answer, and
// breaks instead of passing it back.
type committing struct {
	cutting
	armed *atomic.Bool
}

func (c *committing) Write(b []byte) (int, error) {
	if c.armed.Load() && bytes.Contains(bytes.ToLower(b), []byte("commit\x00")) {
		c.left.Store(0)
	}
	return c.Conn.Write(b)
}

// The server sends a response after the commit. pgx calls an error safe to retry if a connection breaks
// between the results of a batch in QueryExecModeExec. The fault harness cuts in all modes.
func TestGiveBacksOfABrokenConnection(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		direct := newLimiter(t, d.store(t, schema, nil), slow(1000))
		for after := int64(0); ; after += 13 {
			var left atomic.Int64
			left.Store(-1)
			p := pool(t, d.dsn, func(c *pgxpool.Config) {
				c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
				wrap(c.ConnConfig, func(conn net.Conn) net.Conn { return &cutting{conn, &left} })
			})
			store := storeOn(t, p, schema)
			key := fmt.Sprint(secret, after)
			must(t, testenv.ErrorOf(direct.AllowN(bounded(t), key, 10)))
			refund := take(slow(1000), key, 1)
			refund.Kind = limiter.OpRefund
			refunds := []limiter.Op{refund, refund, refund}
			must(t, postgres.GiveBackAll(bounded(t), store, refunds)) // it connects
			left.Store(after)
			err := postgres.GiveBackAll(bounded(t), store, refunds)
			res, peekErr := direct.Peek(bounded(t), key)
			must(t, peekErr)
			p.Close()
			if err == nil {
				break
			}
			if applied := res.Remaining == 1000-10+2*3; applied && !errors.Is(err, limiter.ErrOutcomeUnknown) {
				t.Errorf("cut after %d bytes: %v, want ErrOutcomeUnknown", after, err)
			}
		}
	})
}
