package postgres_test

import (
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
	query, args := rowtest.SQL{Schema: r.schema}.Insert(rowtest.TableOf(op.Policy), op.Name, op.Key, row)
	if _, err := r.conn.Exec(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func (r rows) Read(t *testing.T, op limiter.Op) (row limiter.Row) {
	t.Helper()
	table := rowtest.TableOf(op.Policy)
	query := rowtest.SQL{Schema: r.schema}.Select(table) + " WHERE limiter = $1 AND key = $2"
	answer, err := r.conn.Query(t.Context(), query, op.Name, []byte(op.Key))
	if err == nil {
		defer answer.Close()
		err = rowtest.Read(table, answer, func(_, _ string, read limiter.Row) { row = read })
	}
	if err != nil {
		t.Fatal(err)
	}
	return row
}
