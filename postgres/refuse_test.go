package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// traces returns everything that a statement could leave in the rows of keys: a new version (xmin, ctid) or a
// lock (xmax).
func (d *database) traces(t *testing.T, schema string, keys ...string) string {
	t.Helper()
	var rows []string
	for _, table := range tables.All {
		rows = append(rows, fmt.Sprintf("SELECT xmin, xmax, ctid, r::text AS r, key FROM %s.%s r", schema, table.Name))
	}
	return query[string](t, d, "SELECT string_agg(concat_ws(' ', xmin, xmax, ctid, r), '; ') FROM ("+strings.Join(rows, " UNION ALL ")+
		") AS rows WHERE convert_from(key, 'UTF8') = ANY ($1)", keys)
}

// assigned reports whether a transaction has got an id, because it wrote or locked something.
func assigned(t *testing.T, tx pgx.Tx) (has bool) {
	t.Helper()
	must(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&has))
	return has
}

func TestRefusalsLeaveNoTrace(t *testing.T) {
	reserve := func(op limiter.Op) limiter.Op { op.MaxWait = time.Minute; return op }
	day, _ := midnightIn(2, time.Now(), 12*time.Hour)
	sliding := rowtest.Lasting["sliding"](2)
	half := []limiter.Op{take(slow(2), "k", 1), take(long(2), "k", 1), take(counting(2), "c", 1), take(day, "d", 1), take(sliding, "k", 1), take(places(2), "k", 1)}
	rest := slices.Concat(half[:5], []limiter.Op{take(places(2), "k", 1), take(slow(6), "other", 1)})
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			name string
			ops  []limiter.Op // AllowAll, if there are several
		}{
			{"bucket", []limiter.Op{take(slow(2), "k", 1)}},
			{"bucket, reservation", []limiter.Op{reserve(take(slow(2), "k", 1))}},
			{"bucket, look", []limiter.Op{look(slow(2), "k")}},
			{"bucket, look with another policy", []limiter.Op{look(slow(3), "k")}},
			{"bucket, look at no row", []limiter.Op{look(slow(2), "missing")}},
			{"window", []limiter.Op{take(long(2), "k", 1)}},
			{"window, reservation", []limiter.Op{reserve(take(long(2), "k", 1))}},
			{"window of an earlier policy", []limiter.Op{take(long(3), "k", 2)}},
			{"window, look", []limiter.Op{look(long(2), "k")}},
			{"calendar", []limiter.Op{take(day, "d", 1)}},
			{"sliding window", []limiter.Op{take(sliding, "k", 1)}},
			{"sliding window, look", []limiter.Op{look(sliding, "k")}},
			{"leases", []limiter.Op{take(places(2), "k", 1)}},
			{"leases, look", []limiter.Op{look(places(2), "k")}},
			{"window that counts refusals, look", []limiter.Op{look(counting(2), "c")}},
			{"several limits, the bucket is used up", []limiter.Op{take(slow(2), "k", 1), take(slow(5), "other", 1), take(long(5), "free", 1)}},
			{"several limits, the window is used up", []limiter.Op{take(slow(5), "free", 1), take(slow(5), "other", 1), take(long(2), "k", 1)}},
			{"several limits, both are used up", []limiter.Op{take(slow(2), "k", 1), take(long(2), "k", 1)}},
		} {
			t.Run(c.name, func(t *testing.T) {
				// The store has seen the key with half left when another one takes the rest.
				schema := d.schema(t)
				store, other := d.store(t, schema, nil), d.store(t, schema, few(1))
				for _, op := range half {
					do(t, store, op)
				}
				for _, op := range rest {
					do(t, other, op)
				}
				refuse := func(s *postgres.Store) {
					took := false
					if len(c.ops) > 1 {
						_, took = doAll(t, s, slices.Clone(c.ops)...)
					} else {
						took = do(t, s, c.ops[0]).Took
					}
					if took {
						t.Error("it took")
					}
				}
				before := d.traces(t, schema, "k", "c", "d", "other", "free", "missing")
				refuse(store)
				if op := c.ops[0]; len(c.ops) == 1 {
					op.Timeout = testTimeout // in the queue, where refusals share statements
					release, done := d.holdLock(t, queueOf(schema, op)), make(chan struct{})
					go func() {
						each(3*32, func(int) {
							if s, err := store.Do(t.Context(), op); err != nil || s.Took {
								t.Errorf("%+v, %v; want a refusal", s, err)
							}
						})
						close(done)
					}()
					testenv.Equal(t, d.waits(t, done), false, "a refusal waits behind other processes")
					release()
					<-done
				}
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				refuse(storeOn(t, tx, schema))
				if assigned(t, tx) {
					t.Error("the transaction got an id")
				}
				if do(t, storeOn(t, tx, schema), take(slow(1), "granted", 1)); !assigned(t, tx) {
					t.Error("a grant gave the transaction no id, so this test proves nothing")
				}
				end(t, tx, false)
				testenv.Equal(t, d.traces(t, schema, "k", "c", "d", "other", "free", "missing"), before, "the rows")
			})
		}
	})
}

// A charge counts in a window that lies ahead, here of a block. The statement for charges of the
// current window must leave that row alone.
func TestChargeOfAWindowAheadWritesOnce(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
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
		testenv.Equal(t, query[int64](t, d, place)-before, 1, "new versions of the row")
	})
}

// The test is not parallel: no other test of this package may write meanwhile.
func TestRefusalsWriteNoWAL(t *testing.T) {
	const calls = 1000
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		store := d.store(t, d.schema(t), few(1))
		spent := []limiter.Op{take(slow(1), "k", 1), take(long(1), "k", 1)}
		for _, op := range slices.Concat(spent, four(1)) {
			do(t, store, op)
		}
		missing := []limiter.Op{take(slow(1), "missing", 1), take(long(1), "missing", 1)}
		for name, ops := range map[string][]limiter.Op{
			"a bucket":                          spent[:1],
			"a window":                          spent[1:],
			"several limits, all of them spent": spent,
			"several limits, some with room":    {four(1)[0], spent[0], four(1)[2], spent[1]},
			"several limits, some missing":      {spent[0], missing[0], spent[1], missing[1]},
		} {
			// The server writes WAL of its own now and then. One run of five without any is enough.
			least := int64(1) << 62
			for range 5 {
				before := query[string](t, d, "SELECT pg_current_wal_insert_lsn()::text")
				for range calls {
					if len(ops) == 1 && do(t, store, ops[0]).Took {
						t.Fatal("Took = true, want a refusal")
					}
					if _, took := doAll(t, store, slices.Clone(ops)...); took {
						t.Fatal("all were taken, want a refusal")
					}
				}
				least = min(least, query[int64](t, d, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::bigint", before))
				if least == 0 {
					break
				}
			}
			testenv.Equal(t, least, 0, name, calls, "refusals: bytes of WAL")
		}
	})
}
