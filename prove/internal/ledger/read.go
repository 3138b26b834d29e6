package ledger

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

func compareIDs(a, b ID) int {
	return cmp.Or(strings.Compare(a.Limiter, b.Limiter), strings.Compare(a.Key, b.Key))
}

// Read returns what is stored of each key. A bucket's is exact for as long as its key is younger than the
// time of one token.
func Read(ctx context.Context, conn *pgx.Conn) (map[ID]int64, error) {
	var now int64
	if err := conn.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000").Scan(&now); err != nil {
		return nil, err
	}
	stored := map[ID]int64{}
	err := tables.Rows(ctx, conn, "", func(kind limiter.PolicyKind, name, key string, row limiter.Row) {
		if units := rowtest.Used(kind, row, now); units > 0 {
			stored[ID{kind, name, key}] = units
		}
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
