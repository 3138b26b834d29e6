package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

// record notes a setting at each write of the tables.
func (d *database) record(t *testing.T, schema, setting string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`CREATE TABLE %s.commits (n bigserial, mode text)`, schema))
	d.trigger(t, schema, "record", "AFTER INSERT OR UPDATE", fmt.Sprintf(`
		INSERT INTO %s.commits (mode) VALUES (current_setting('%s'));
		RETURN NULL;`, schema, setting))
}

func TestAsyncCommitIsForTheTakesAlone(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		d.record(t, schema, "synchronous_commit")
		for _, async := range []bool{true, false} {
			for name, of := range rowtest.Lasting {
				policy := of(2)
				d.exec(t, "TRUNCATE "+allTables(schema)+", "+schema+".commits")
				p := pool(t, d.dsn, few(1))
				opts := []postgres.Option{}
				if async {
					opts = append(opts, postgres.WithAsyncCommit())
				}
				store := storeOn(t, p, schema, opts...)
				mode := func() (in, after string) {
					in = query[string](t, d, "SELECT coalesce((SELECT mode FROM "+schema+".commits ORDER BY n DESC LIMIT 1), 'none')")
					d.exec(t, "TRUNCATE "+schema+".commits")
					if err := p.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&after); err != nil {
						t.Fatal(err)
					}
					return in, after
				}
				takes := "on"
				if async {
					takes = "off"
				}
				for i, want := range []string{takes, takes, "none"} { // a grant, a grant, a refusal
					if i == 2 && policy == limiter.Policy(counting(2)) {
						want = takes
					}
					do(t, store, take(policy, "k", 1))
					if in, after := mode(); in != want || after != "on" {
						t.Errorf("%s, async %t: take %d committed with %s, want %s; the session is left with %s", name, async, i, in, want, after)
					}
				}
				for _, kind := range []limiter.OpKind{limiter.OpLook, limiter.OpRefund, limiter.OpReset} {
					do(t, store, limiter.Op{Kind: kind, Name: "test", Key: "k", Policy: policy, Cost: 1})
					want := "on"
					if kind == limiter.OpLook {
						want = "none"
					}
					if in, after := mode(); in != want || after != "on" {
						t.Errorf("%s, async %t: operation %d committed with %s, want %s; the session is left with %s", name, async, kind, in, want, after)
					}
				}
			}
		}
	})
}

func TestAsyncCommitIsRefusedOnATransaction(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		nested, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pooled, err := pool(t, d.dsn, few(1)).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pooled.Rollback(t.Context()) }()
		for name, db := range map[string]postgres.DB{"transaction": tx, "savepoint": nested, "transaction of a pool": pooled} {
			_, err := postgres.New(db, postgres.WithAsyncCommit())
			t.Run(name, func(t *testing.T) { wantError(t, err, limiter.ErrInvalid) })
		}
	})
}
