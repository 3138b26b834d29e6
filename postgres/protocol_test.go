package postgres_test

import (
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// asked notes the kind of each first message that is written to a server.
type asked struct {
	net.Conn
	mu    *sync.Mutex
	kinds map[byte]int
}

func (a asked) Write(b []byte) (int, error) {
	a.mu.Lock()
	a.kinds[b[0]]++
	a.mu.Unlock()
	return a.Conn.Write(b)
}

// In the simple protocol pgx takes a statement whose answer was lost for one that it never
// sent.
func TestNoSimpleProtocol(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		var mu sync.Mutex
		kinds := map[byte]int{}
		p := pool(t, d.dsn, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			wrap(c.ConnConfig, func(conn net.Conn) net.Conn { return asked{conn, &mu, kinds} })
		})
		store := storeOn(t, p, schema)
		for _, op := range all("k") {
			do(t, store, op)
			op.Timeout = testTimeout // by way of the queue, if it is a take
			do(t, store, op)
		}
		mu.Lock()
		defer mu.Unlock()
		const simple, parse = 'Q', 'P'
		if kinds[simple] > 0 || kinds[parse] < 2*len(all("k")) {
			t.Errorf("%d statements went in the simple protocol, %d in the extended one", kinds[simple], kinds[parse])
		}
	})
}

// pgx fails each statement in a mode whose cache is turned off, and nothing is sent.
func TestWithoutAStatementCache(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for name, change := range map[string]func(*pgx.ConnConfig){
			"cache_statement": func(c *pgx.ConnConfig) { c.StatementCacheCapacity = 0 },
			"cache_describe": func(c *pgx.ConnConfig) {
				c.DefaultQueryExecMode, c.DescriptionCacheCapacity = pgx.QueryExecModeCacheDescribe, 0
			},
		} {
			store := storeOn(t, pool(t, d.dsn, func(c *pgxpool.Config) { change(c.ConnConfig) }), schema)
			for _, op := range all(name) {
				do(t, store, op)
			}
		}
	})
}
