package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

func TestOperationsOnAnyRow(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, of := range map[string]func(*postgres.Store) limiter.Store{
			"by one statement": func(s *postgres.Store) limiter.Store { return s },
			"settled":          func(s *postgres.Store) limiter.Store { return postgres.Settled{Store: s} },
		} {
			schema := d.schema(t)
			t.Run(name, func(t *testing.T) {
				rowtest.Run(t, of(d.store(t, schema, few(1))), rows{connect(t, d.dsn), schema}, 300)
			})
		}
	})
}

func TestOperationsOfOneKeyThatMeet(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		rowtest.RunMixed(t, d.store(t, schema, nil), rows{connect(t, d.dsn), schema}, 300)
	})
}

// rows are those of a schema, for rowtest.
type rows struct {
	conn   *pgx.Conn
	schema string
}

func (r rows) Insert(t *testing.T, op limiter.Op, row limiter.Row) {
	t.Helper()
	sql := `INSERT INTO %s.limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted) VALUES ($1, $2, $3, $4, $5, $6, 1)`
	args := []any{op.Name, []byte(op.Key), row.FullAt, row.At, row.Period, row.Limit}
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		sql = `INSERT INTO %s.limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted) VALUES ($1, $2, $3, $4, $5, $6, $7, 1)`
		args = []any{op.Name, []byte(op.Key), row.Start, row.Used, row.At, row.Period, row.Limit}
	}
	if _, err := r.conn.Exec(t.Context(), fmt.Sprintf(sql, r.schema), args...); err != nil {
		t.Fatal(err)
	}
}

func (r rows) Read(t *testing.T, op limiter.Op) (row limiter.Row) {
	t.Helper()
	sql := `SELECT full_at, 0, 0, at, step, capacity FROM %s.limiter_token_buckets WHERE limiter = $1 AND key = $2`
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		sql = `SELECT 0, window_start, used, at, win, lim FROM %s.limiter_fixed_windows WHERE limiter = $1 AND key = $2`
	}
	err := r.conn.QueryRow(t.Context(), fmt.Sprintf(sql, r.schema), op.Name, []byte(op.Key)).
		Scan(&row.FullAt, &row.Start, &row.Used, &row.At, &row.Period, &row.Limit)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return row
}
