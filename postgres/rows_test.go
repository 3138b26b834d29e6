package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// rowRun is a way in which a store decides. count is how many operations rowtest compares.
type rowRun struct {
	name string
	pool bool // it needs the queue of a pool
	run  func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int)
}

var rowRuns = []rowRun{
	{"by one statement", false, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) { rowtest.Run(t, s, r, count) }},
	{"settled", false, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) {
		rowtest.Run(t, postgres.Settled{Store: s}, r, count)
	}},
	{"under the lock", false, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) {
		rowtest.Run(t, postgres.RowLocked{Store: s}, r, count/3)
	}},
	{"several limits by one statement", false, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) {
		rowtest.RunAll(t, s, r, 50+count)
	}},
	{"several limits in a transaction", false, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) {
		rowtest.RunAll(t, postgres.SettledAll{Store: s}, r, 50+count/2)
	}},
	{"merged takes", true, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) { rowtest.RunMerged(t, s, r, count) }},
	{"mixed calls", true, func(t *testing.T, s *postgres.Store, r rowtest.Rows, count int) { rowtest.RunMixed(t, s, r, count) }},
}

// Whatever a row holds, a store answers what Op.Apply returns, and leaves the same row. Each way to decide has a
// test of its own, so that a mutant of one way does not run the tests of the others.
func TestRows(t *testing.T)          { onRows(t, "by one statement") }
func TestRowsSettled(t *testing.T)   { onRows(t, "settled") }
func TestRowsLocked(t *testing.T)    { onRows(t, "under the lock") }
func TestRowsOfAll(t *testing.T)     { onRows(t, "several limits by one statement") }
func TestRowsOfAllInTx(t *testing.T) { onRows(t, "several limits in a transaction") }
func TestRowsOfMerged(t *testing.T)  { onRows(t, "merged takes") }
func TestRowsOfMixed(t *testing.T)   { onRows(t, "mixed calls") }

func onRows(t *testing.T, way string) {
	run := rowRuns[slices.IndexFunc(rowRuns, func(r rowRun) bool { return r.name == way })]
	onPostgres(t, func(t *testing.T, d *database) {
		for i, h := range handles {
			t.Run(h.name, func(t *testing.T) {
				db, count := h.open(t, d.dsn), 60
				if i == 0 {
					count = 300
				}
				if _, pooled := db.(*pgxpool.Pool); run.pool && !pooled {
					t.Skip("only a pool has a queue")
				}
				var conn *pgx.Conn // which sees the rows that db writes
				switch db := db.(type) {
				case pgx.Tx:
					conn = db.Conn()
				case *pgx.Conn:
					conn = db
				default:
					conn = connect(t, d.dsn)
				}
				schema := d.schema(t)
				run.run(t, storeOn(t, db, schema), rows{conn, schema}, count)
			})
		}
	})
}

// An added row also comes back with its key in the escape format.
func TestRowsInEscapeFormat(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		rowtest.RunMerged(t, d.store(t, schema, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			c.ConnConfig.RuntimeParams["bytea_output"] = "escape"
		}), rows{connect(t, d.dsn), schema}, 50)
	})
}

// Whatever another session makes of a row between the snapshot of a statement and its lock, the store decides
// by the row that it locks.
func TestRowsThatChange(t *testing.T) { onChangingRows(t) }

// The statements for Citus also run on PostgreSQL.
func TestRowsThatChangeOnCitus(t *testing.T) { onChangingRows(t, postgres.WithCitus()) }

func onChangingRows(t *testing.T, opts ...postgres.Option) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		rowtest.RunChanged(t, d.store(t, schema, nil, opts...), changing{rows{connect(t, d.dsn), schema}, d}, 200)
	})
}

// changing is rows that another session changes.
type changing struct {
	rows
	d *database
}

func (r changing) While(t *testing.T, op limiter.Op, row limiter.Row, do func()) (waited bool) {
	t.Helper()
	table, texts := rowtest.TableOf(op.Policy), rowtest.SQL{Schema: r.schema}
	query, args := texts.Replace(table, op.Name, op.Key, row)
	if row.Limit == 0 {
		query, args = "DELETE FROM "+texts.Name(table)+" WHERE limiter = $1 AND key = $2", args[:2]
	}
	tx, err := r.conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), query, args...)
	}
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	waited = r.d.waits(t, done)
	must(t, tx.Commit(t.Context()))
	<-done
	return waited
}

// rows are those of a schema, for rowtest.
type rows struct {
	conn   *pgx.Conn
	schema string
}

func (r rows) Insert(t *testing.T, op limiter.Op, row limiter.Row) {
	t.Helper()
	query, args := rowtest.SQL{Schema: r.schema}.Insert(rowtest.TableOf(op.Policy), op.Name, op.Key, row)
	must(t, testenv.ErrorOf(r.conn.Exec(t.Context(), query, args...)))
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
	must(t, err)
	return row
}
