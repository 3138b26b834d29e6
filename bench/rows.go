package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// rowsSQL carries out the takes of many keys: all of those of a key, or none. The order keeps two such
// statements from waiting for each other in a circle.
const rowsSQL = `
INSERT INTO %s AS b (key, full_at, spend, units)
SELECT u.key, clock.at + u.units * $3::interval, u.units * $3::interval, u.units
FROM unnest($1::text[], $2::bigint[]) AS u (key, units), (SELECT clock_timestamp() AS at) AS clock
ORDER BY u.key COLLATE "C"
ON CONFLICT (key) DO UPDATE
SET full_at = greatest(b.full_at, excluded.full_at - excluded.spend) + excluded.spend, spend = excluded.spend, units = excluded.units
WHERE greatest(b.full_at, excluded.full_at - excluded.spend) + excluded.spend <= excluded.full_at - excluded.spend + $4::interval
RETURNING units`

// openRows is no limiter that one could use, as nobody waits for a decision of their own. It is what
// PostgreSQL can do at best if requests come together in statements.
func openRows(ctx context.Context, b *backends, p policy) (decider, error) {
	pg, err := b.postgres(ctx)
	if err != nil {
		return decider{}, err
	}
	table, err := newTable(ctx, pg, "rows_"+p.name, `key text COLLATE "C" PRIMARY KEY, full_at timestamptz NOT NULL,
		spend interval NOT NULL, units bigint NOT NULL`)
	if err != nil {
		return decider{}, err
	}
	statement := fmt.Sprintf(rowsSQL, table)
	capacity := time.Duration(p.capacity) * p.step
	return decider{batch: func(ctx context.Context, keys []string) (int, error) {
		names, units := merged(keys)
		rows, err := pg.Pool.Query(ctx, statement, names, units, p.step, capacity)
		if err != nil {
			return 0, err
		}
		granted, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		var sum int64
		for _, n := range granted {
			sum += n
		}
		return int(sum), err
	}}, nil
}

// merged returns each key once, and how many times it was there.
func merged(keys []string) (names []string, units []int64) {
	at := make(map[string]int, len(keys))
	for _, key := range keys {
		i, ok := at[key]
		if !ok {
			i = len(names)
			at[key] = i
			names, units = append(names, key), append(units, 0)
		}
		units[i]++
	}
	return names, units
}
