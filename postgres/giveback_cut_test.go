package postgres_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

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

// The server sends a response after the commit. pgx calls an error safe to retry if a connection breaks
// between the results of a batch in QueryExecModeExec.
func TestGiveBacksOfABrokenConnectionAreNeverCalledNotAppliedOnceTheyAre(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		direct := newLimiter(t, d.store(t, schema, nil), slow(1000))
		for _, m := range []pgx.QueryExecMode{
			pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		} {
			for after := int64(0); ; after += 13 {
				var left atomic.Int64
				left.Store(-1)
				p := pool(t, d.dsn, func(c *pgxpool.Config) {
					c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, m
					wrap(c.ConnConfig, func(conn net.Conn) net.Conn { return &cutting{conn, &left} })
				})
				store := storeOn(t, p, schema)
				key := fmt.Sprint(secret, m, after)
				if _, err := direct.AllowN(bounded(t), key, 10); err != nil {
					t.Fatal(err)
				}
				refunds := make([]limiter.Op, 3)
				for i := range refunds {
					refunds[i] = take(slow(1000), key, 1)
					refunds[i].Kind = limiter.OpRefund
				}
				if err := postgres.GiveBackAll(bounded(t), store, refunds); err != nil { // it prepares the statement
					t.Fatal(err)
				}
				left.Store(after)
				err := postgres.GiveBackAll(bounded(t), store, refunds)
				res, peekErr := direct.Peek(bounded(t), key)
				if peekErr != nil {
					t.Fatal(peekErr)
				}
				p.Close()
				if err == nil {
					break
				}
				if applied := res.Remaining == 1000-10+2*3; applied && !errors.Is(err, limiter.ErrOutcomeUnknown) {
					t.Errorf("%v, cut after %d bytes: %v, want ErrOutcomeUnknown", m, after, err)
				}
			}
		}
	})
}
