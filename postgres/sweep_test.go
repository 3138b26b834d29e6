package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// rows fills both tables with n keys each, named so that they sort by number,
// which have been unused for the given time.
func (d *database) rows(t *testing.T, schema, prefix string, n int, since string) {
	t.Helper()
	ago := fmt.Sprintf("(%s - (extract(epoch FROM interval '%s') * 1000000)::bigint * 1000)", serverClock, since)
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
		SELECT 'l', convert_to('%s' || lpad(i::text, 6, '0'), 'UTF8'), %s, 1, 1000, 1, 1 FROM generate_series(1, %d) AS i`, schema, prefix, ago, n))
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_fixed_windows (limiter, key, window_start, win, lim, used, at, granted)
		SELECT 'l', convert_to('%s' || lpad(i::text, 6, '0'), 'UTF8'), %s - 1000000, 1000000, 1, 1, 1, 1 FROM generate_series(1, %d) AS i`, schema, prefix, ago, n))
}

func (d *database) count(t *testing.T, schema, where string) [2]int {
	t.Helper()
	return [2]int{
		query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.limiter_token_buckets WHERE %s", schema, where)),
		query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.limiter_fixed_windows WHERE %s", schema, where)),
	}
}

func TestSweep(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		// Over several pages of 250 rows; the first has nothing to remove.
		for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
			schema := d.schema(t)
			store := storeOn(t, mode(m)(t, d.dsn), schema)
			d.rows(t, schema, "a", 1100, "-1 hour")
			d.rows(t, schema, "b", 400, "59 minutes")
			d.rows(t, schema, "c", 1200, "61 minutes")
			d.rows(t, schema, "d", 10, "0")
			// Its bucket has long been full, but a clock that is ahead wrote it just now.
			d.exec(t, fmt.Sprintf("UPDATE %s.limiter_token_buckets SET at = %s WHERE key = 'c000007'", schema, serverClock))
			d.exec(t, fmt.Sprintf("UPDATE %s.limiter_fixed_windows SET at = %s WHERE key = 'c000007'", schema, serverClock))

			for _, want := range []int64{100, 1099 + 1199, 0} {
				limit := int64(1_000_000)
				if want == 100 {
					limit = want
				}
				if n, err := store.Sweep(bounded(t), limit); err != nil || n != want {
					t.Errorf("Sweep(%d) = %d, %v; want %d", limit, n, err, want)
				}
			}
			testenv.Equal(t, d.count(t, schema, "true"), [2]int{1511, 1511}, "rows that are left")
		}
	})
}

func TestShortSweepsOfNewStores(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema, db := d.schema(t), pool(t, d.dsn, nil)
		// Of one limiter, and of nearly the same key, as somebody may choose them.
		d.rows(t, schema, "a", 500, "2 hours")
		d.rows(t, schema, "b", 8000, "-1 hour")
		d.rows(t, schema, "c", 500, "2 hours")
		const pages, calls = 2, 500
		removed, call := int64(0), 0
		for ; removed < 2000 && call < calls; call++ { // two statements, of about 130 pages a table
			n, err := storeOn(t, db, schema).Sweep(testenv.Looks(bounded(t), pages), 1_000_000)
			if err != nil && !errors.Is(err, limiter.ErrCanceled) {
				t.Fatal(err)
			}
			removed += n
		}
		t.Logf("%d calls removed %d rows", call, removed)
		testenv.Equal(t, removed, 2000, call, "calls of", pages, "statements removed")
	})
}

func TestSweepSkipsLockedRows(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		d.rows(t, schema, "a", 20, "2 hours")
		release := []func(){
			d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key = 'a000003' FOR UPDATE"),
			d.holdLock(t, "SELECT FROM "+schema+".limiter_fixed_windows WHERE key = 'a000004' FOR UPDATE"),
		}
		// A take that has not committed yet also holds its row.
		tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
		op := take(slow(5), "a000005", 1)
		op.Name = "l"
		do(t, storeOn(t, tx, schema), op)

		n, err := store.Sweep(bounded(t), 1000)
		if err != nil || n != 40-3 {
			t.Errorf("Sweep = %d, %v; want 37", n, err)
		}
		for _, f := range release {
			f()
		}
		end(t, tx, true)
		if n, err = store.Sweep(bounded(t), 1000); err != nil || n != 2 {
			t.Errorf("Sweep afterwards = %d, %v; want 2", n, err)
		}
		testenv.Equal(t, d.count(t, schema, "key = 'a000005'"), [2]int{1, 0}, "rows of the key that was taken from")
	})
}

// The rows are read, locked and removed one after another, by what a snapshot shows.
func TestSweepKeepsARowInUse(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		d.exec(t, fmt.Sprintf(`CREATE FUNCTION %s.halt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_advisory_xact_lock(1);
			RETURN OLD;
		END $$`, schema))
		for table, policy := range map[string]limiter.Policy{"limiter_token_buckets": slow(5), "limiter_fixed_windows": long(5)} {
			d.rows(t, schema, "a", 3, "2 hours")
			d.exec(t, fmt.Sprintf(`CREATE TRIGGER halt BEFORE DELETE ON %s.%s FOR EACH ROW
				WHEN (OLD.key = 'a000001') EXECUTE FUNCTION %[1]s.halt()`, schema, table))
			d.vacuum(t, schema) // of so few rows, the plan locks each row after it deletes the one before
			release := d.holdLock(t, "SELECT pg_advisory_xact_lock(1)")
			var sweep sync.WaitGroup
			sweep.Go(func() {
				if n, err := store.Sweep(bounded(t), 100); err != nil || n != 4 { // of the other table all
					t.Errorf("%s: Sweep = %d, %v; want 4", table, n, err)
				}
			})
			d.blocked(t, 1) // at the removal of the first row
			op := take(policy, "a000002", 1)
			op.Name = "l"
			do(t, store, op)
			// An operation may write its time alone.
			d.exec(t, fmt.Sprintf("UPDATE %s.%s SET at = %d WHERE key = 'a000003'", schema, table, time.Now().UnixNano()))
			release()
			sweep.Wait()
			for key, change := range map[string]string{"a000002": "taken from", "a000003": "seen at a later time"} {
				got := query[int](t, d, fmt.Sprintf("SELECT count(*) FROM %s.%s WHERE key = '%s'", schema, table, key))
				testenv.Equal(t, got, 1, "rows in", table, change)
			}
			d.exec(t, "TRUNCATE "+allTables(schema))
			d.exec(t, fmt.Sprintf("DROP TRIGGER halt ON %s.%s", schema, table))
		}
	})
}

func TestSweepOfShortCalls(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		d.rows(t, schema, "k", 8000, "2 hours")
		release := d.holdLock(t, "LOCK "+schema+".limiter_token_buckets")
		// The first call waits where it chooses a position. Each later one waits in a statement, so the next covers fewer pages.
		for range 6 {
			ctx, leave := context.WithCancel(t.Context())
			var sweep sync.WaitGroup
			sweep.Go(func() { testenv.ErrorIs(t, testenv.ErrorOf(store.Sweep(ctx, 1_000_000)), limiter.ErrCanceled) })
			d.blocked(t, 1)
			leave()
			sweep.Wait()
			d.blocked(t, 0)
		}
		release()
		before := d.count(t, schema, "true")[0]
		_, err := store.Sweep(testenv.Looks(bounded(t), int64(len(tables.All))), 1_000_000)
		testenv.ErrorIs(t, err, limiter.ErrCanceled)
		if n := before - d.count(t, schema, "true")[0]; n == 0 || n > 500 {
			t.Errorf("a statement after too many that were too long deleted %d buckets, want a few pages", n)
		}
		if _, err := store.Sweep(bounded(t), 1_000_000); err != nil || d.count(t, schema, "true") != [2]int{} {
			t.Errorf("Sweep: %v; %d rows are left", err, d.count(t, schema, "true"))
		}
	})
}

func TestSweepRange(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		pages int64
		took  time.Duration
		want  int64
	}{
		{64, 2 * ms, 64},
		{64, 1600 * time.Microsecond, 80},
		{128, 2560 * time.Microsecond, 100},
		{64, 10 * ms, 16}, // the server is busy
		{4, 10 * ms, 8},   // after sweeps that had no time for more
		{64, -time.Hour, 128},
		{64, 0, 128},
		{1, time.Second, 2},
		{400, 0, 512},
	} {
		testenv.Equal(t, postgres.NextRange(c.pages, c.took), c.want, c.pages, "pages in", c.took)
	}
}

func TestSweepProgress(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.rows(t, schema, "k", 8000, "2 hours")
		first := d.store(t, schema, nil)
		testenv.Equal(t, first.SweepProgress(), postgres.SweepProgress{}, "before the first Sweep")
		n, err := first.Sweep(testenv.Looks(bounded(t), 2*int64(len(tables.All))), 1_000_000)
		part := first.SweepProgress()
		if !errors.Is(err, limiter.ErrCanceled) || part.Deleted != n || part.Visited == 0 || part.Visited >= part.Total {
			t.Fatalf("after a part of the tables: Sweep = %d, %v; %+v", n, err, part)
		}
		second := d.store(t, schema, nil)
		must(t, second.ContinueSweep(part.Position))
		testenv.Equal(t, second.SweepProgress().Position, part.Position, "the next store begins at")
		must(t, testenv.ErrorOf(second.Sweep(bounded(t), 1_000_000)))
		if whole := second.SweepProgress(); whole.Visited != whole.Total || whole.Total < part.Total {
			t.Errorf("after the whole tables: %+v", whole)
		}
		testenv.ErrorIs(t, second.ContinueSweep("61.ff,61.ff"), limiter.ErrInvalid, "from a position in SQLite")
	})
}

// Row-level security or a trigger may keep rows that expired.
func TestSweepThatMayDeleteNothing(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.exec(t, `INSERT INTO `+schema+`.limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted) SELECT 'l', i::text::bytea, 1, 1, 1000, 1, 1 FROM generate_series(1, 100) AS i`)
		d.trigger(t, schema, "keep", "BEFORE DELETE", "RETURN NULL;")
		if n, err := d.store(t, schema, nil).Sweep(bounded(t), 10); err != nil || n != 0 {
			t.Errorf("Sweep = %d, %v; want the end", n, err)
		}
	})
}
