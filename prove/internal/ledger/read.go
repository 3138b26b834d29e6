package ledger

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

func compareIDs(a, b ID) int {
	return cmp.Or(strings.Compare(a.Limiter, b.Limiter), strings.Compare(a.Key, b.Key))
}

// What is stored. A bucket's is exact for as long as its key is younger than the time
// of one token.
const selectStored = `SELECT false, limiter, key, greatest(0, full_at - now + step - 1) / step
	FROM limiter_token_buckets, (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS now) AS clock
	UNION ALL SELECT true, limiter, key, used FROM limiter_fixed_windows`

// Read returns what is stored of each key.
func Read(ctx context.Context, conn *pgx.Conn) (map[ID]int64, error) {
	rows, err := conn.Query(ctx, selectStored)
	if err != nil {
		return nil, err
	}
	stored := map[ID]int64{}
	var id ID
	var key []byte
	var units int64
	_, err = pgx.ForEachRow(rows, []any{&id.Window, &id.Limiter, &key, &units}, func() error {
		if id.Key = string(key); units > 0 {
			stored[id] = units
		}
		return nil
	})
	return stored, err
}

// active counts statements of others. One whose caller has left may still be at work.
const active = `SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'`

// Quiet waits until no statement is under way any more.
func Quiet(ctx context.Context, conn *pgx.Conn) error {
	for {
		var n int
		if err := conn.QueryRow(ctx, active).Scan(&n); err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d statements do not end: %w", n, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
