package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// recordCommits notes how each write of the tables is going to commit.
func (d *database) recordCommits(t *testing.T, schema string) {
	t.Helper()
	d.record(t, schema, "synchronous_commit")
}

// record notes a setting at each write of the tables.
func (d *database) record(t *testing.T, schema, setting string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`CREATE TABLE %s.commits (n bigserial, mode text)`, schema))
	d.exec(t, fmt.Sprintf(`CREATE FUNCTION %s.record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO %[1]s.commits (mode) VALUES (current_setting('%[2]s'));
		RETURN NULL;
	END $$`, schema, setting))
	for _, table := range []string{"limiter_token_buckets", "limiter_fixed_windows"} {
		d.exec(t, fmt.Sprintf(`CREATE TRIGGER record AFTER INSERT OR UPDATE ON %s.%s FOR EACH ROW EXECUTE FUNCTION %[1]s.record()`, schema, table))
	}
}

func TestAsyncCommitIsForTheTakesAlone(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		d.recordCommits(t, schema)
		for _, async := range []bool{true, false} {
			for _, c := range []struct {
				name   string
				policy limiter.Policy
			}{{"bucket", slow(2)}, {"window", long(2)}, {"window that counts refusals", counting(2)}} {
				d.exec(t, fmt.Sprintf("TRUNCATE %s.limiter_token_buckets, %[1]s.limiter_fixed_windows, %[1]s.commits", schema))
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
					if i == 2 && c.policy == limiter.Policy(counting(2)) {
						want = takes
					}
					do(t, store, take(c.policy, "k", 1))
					if in, after := mode(); in != want || after != "on" {
						t.Errorf("%s, async %t: take %d committed with %s, want %s; the session is left with %s", c.name, async, i, in, want, after)
					}
				}
				for _, kind := range []limiter.OpKind{limiter.OpLook, limiter.OpRefund, limiter.OpReset} {
					do(t, store, limiter.Op{Kind: kind, Name: "test", Key: "k", Policy: c.policy, Cost: 1})
					want := "on"
					if kind == limiter.OpLook {
						want = "none"
					}
					if in, after := mode(); in != want || after != "on" {
						t.Errorf("%s, async %t: operation %d committed with %s, want %s; the session is left with %s", c.name, async, kind, in, want, after)
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
