package trial

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// DSN is the variable in which the tests look for a server; see package internal/dbtest.
const DSN = "LIMITER_TEST_POSTGRES_DSN"

// cleaner drops the databases that stopped tests leave behind. Without it they would fill the disk.
type cleaner struct {
	dsn  string
	seen map[string]bool // databases that were there the last time
	last time.Time
}

// A database that is there two times was left behind: no run takes as long as the time between.
const cleanEvery = 5 * time.Minute

// clean drops databases, if it is time to.
func (c *cleaner) clean(ctx context.Context) error {
	if c.dsn == "" || time.Since(c.last) < cleanEvery {
		return nil
	}
	c.last = time.Now()
	conn, err := pgx.Connect(ctx, c.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT datname::text FROM pg_database WHERE datname LIKE 'limiter\_test\_%'`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		if c.seen[name] {
			if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
				return err
			}
			continue
		}
		there[name] = true
	}
	c.seen = there
	return nil
}
