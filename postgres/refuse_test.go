package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
)

// traces returns everything that a statement could leave in a key's row: a new version
// (xmin, ctid) or a lock (xmax).
func (d *database) traces(t *testing.T, schema, key string) string {
	t.Helper()
	return query[string](t, d, fmt.Sprintf(`SELECT string_agg(concat_ws(' ', xmin, xmax, ctid, r), '; ') FROM (
		SELECT xmin, xmax, ctid, b::text AS r, key FROM %s.limiter_token_buckets b UNION ALL
		SELECT xmin, xmax, ctid, w::text, key FROM %[1]s.limiter_fixed_windows w) AS rows WHERE key = '%s'`, schema, key))
}

func assigned(t *testing.T, tx pgx.Tx) bool {
	t.Helper()
	var has bool
	err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&has)
	if err != nil {
		t.Fatal(err)
	}
	return has
}

func TestRefusalLeavesNoTraceInTheDatabase(t *testing.T) {
	reserve := func(op limiter.Op) limiter.Op { op.MaxWait = time.Minute; return op }
	cases := []struct {
		name   string
		policy limiter.Policy // exhausted before
		op     limiter.Op
	}{
		{"bucket", slow(2), take(slow(2), "k", 1)},
		{"bucket, reservation", slow(2), reserve(take(slow(2), "k", 1))},
		{"bucket, look", slow(2), look(slow(2), "k")},
		{"bucket, look of another policy", slow(2), look(slow(3), "k")},
		{"bucket, look at no row", slow(2), look(slow(2), "other")},
		{"window", long(2), take(long(2), "k", 1)},
		{"window, reservation", long(2), reserve(take(long(2), "k", 1))},
		{"window of an earlier policy", long(2), take(long(3), "k", 2)},
		{"window, look", long(2), look(long(2), "k")},
		{"window that counts refusals, look", counting(2), look(counting(2), "k")},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		conn := connect(t, d.dsn)
		pooled := pool(t, d.dsn, few(1))
		schema := d.schema(t)
		for _, c := range cases {
			d.exec(t, "TRUNCATE "+allTables(schema))
			// The store has seen the key with half left when another one takes the rest.
			store := storeOn(t, pooled, schema)
			do(t, store, take(c.policy, "k", 1))
			do(t, storeOn(t, pooled, schema), take(c.policy, "k", 1))
			before := d.traces(t, schema, "k")
			for range 2 {
				if s := do(t, store, c.op); s.Took {
					t.Errorf("%s: Took = true", c.name)
				}
			}
			tx := begin(t, conn, pgx.ReadCommitted)
			do(t, storeOn(t, tx, schema), c.op)
			if assigned(t, tx) {
				t.Errorf("%s: the transaction got an id", c.name)
			}
			end(t, tx, false)
			after := d.traces(t, schema, "k")
			if after != before {
				t.Errorf("%s: the row was\n%s and is\n%s", c.name, before, after)
			}
		}
	})
}

func TestGrantsAndCountedRefusalsWrite(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		conn := connect(t, d.dsn)
		schema := d.schema(t)
		for i, policy := range []limiter.Policy{slow(2), long(2), counting(1)} {
			for range 2 { // the second one of counting is refused, but counted
				tx := begin(t, conn, pgx.ReadCommitted)
				do(t, storeOn(t, tx, schema), take(policy, fmt.Sprint(i), 1))
				if !assigned(t, tx) {
					t.Errorf("%+v: the transaction got no id", policy)
				}
				end(t, tx, true)
			}
		}
	})
}

// A charge counts in a window that lies ahead, here of a block. The statement for charges of the
// current window must leave that row alone.
func TestAChargeOfAWindowAheadWritesItsRowOnce(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		block := take(limiter.FixedWindow{Limit: 3, Window: time.Hour}, "k", int64(5*time.Hour))
		block.Kind = limiter.OpBlock
		do(t, store, block)
		charge := block
		charge.Kind, charge.Cost = limiter.OpCharge, 1
		// Each update puts a new version of the row behind the latest one on its page.
		place := fmt.Sprintf("SELECT (ctid::text::point)[1]::bigint FROM %s.limiter_fixed_windows WHERE key = 'k'", schema)
		before := query[int64](t, d, place)
		do(t, store, charge)
		if after := query[int64](t, d, place); after != before+1 {
			t.Errorf("a charge made %d versions of the row, want 1", after-before)
		}
	})
}

// It is not parallel: no other test of this package may write meanwhile.
func TestRefusalsWriteNoWAL(t *testing.T) {
	const calls = 1000
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		store := d.store(t, d.schema(t), few(1))
		spent := []limiter.Op{take(slow(1), "k", 1), take(long(1), "k", 1)}
		refusals := map[string]func(){}
		for _, op := range spent {
			do(t, store, op)
			refusals[fmt.Sprintf("%T", op.Policy)] = func() {
				if s := do(t, store, op); s.Took {
					t.Fatal("Took = true")
				}
			}
		}
		for _, op := range four(1) {
			do(t, store, op)
		}
		missing := []limiter.Op{take(slow(1), "missing", 1), take(long(1), "missing", 1)}
		for name, ops := range map[string][]limiter.Op{
			"several limits, all of them spent": spent,
			"several limits, some with room":    {four(1)[0], spent[0], four(1)[2], spent[1]},
			"several limits, some missing":      {spent[0], missing[0], spent[1], missing[1]},
		} {
			refusals[name] = func() {
				if _, took := doAll(t, store, ops...); took {
					t.Fatal("all were taken")
				}
			}
		}
		for name, refuse := range refusals {
			// The server writes WAL of its own now and then. One run of five without any
			// is enough.
			least := int64(1) << 62
			for range 5 {
				before := query[string](t, d, "SELECT pg_current_wal_insert_lsn()::text")
				for range calls {
					refuse()
				}
				least = min(least, query[int64](t, d, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::bigint", before))
				if least == 0 {
					break
				}
			}
			if least != 0 {
				t.Errorf("%s: %d refusals wrote %d bytes of WAL, want 0", name, calls, least)
			}
		}
	})
}
