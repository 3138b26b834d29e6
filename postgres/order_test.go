package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// edge is the start of an hour, and of a window of an hour.
const edge = 1_800_000_000_000_000_000

// request is a take at a time.
type request struct{ at, cost int64 }

// queued sends two takes while somebody holds the row, and then lets it go: the
// first that waits gets it first. (Of more, the others may overtake each other.)
func (d *database) queued(t *testing.T, store limiter.Store, schema string, policy limiter.Policy, requests [2]request) (states [2]limiter.State) {
	t.Helper()
	release := d.holdLock(t, "SELECT FROM "+rowOf(schema, take(policy, "k", 1))+" FOR UPDATE")
	var wait sync.WaitGroup
	for i, r := range requests {
		op := take(policy, "k", r.cost)
		op.At = r.at
		wait.Go(func() {
			var err error
			if states[i], err = store.Do(bounded(t), op); err != nil {
				t.Errorf("take at %d: %v", r.at, err)
			}
		})
		d.blocked(t, i+1)
	}
	release()
	wait.Wait()
	return states
}

// The second one finds no row when it looks, and one when it writes.
func TestFirstTakesMeet(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		for _, policy := range []limiter.Policy{slow(3), long(3), counting(3)} {
			for _, commit := range []bool{true, false} {
				key := fmt.Sprintf("%+v %t", policy, commit)
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				if s := do(t, storeOn(t, tx, schema), take(policy, key, 2)); !s.Took {
					t.Errorf("%s: the first one is refused", key)
				}
				answer := d.send(bounded(t), t, store, take(policy, key, 2))
				end(t, tx, commit)
				if second, err := answer(); err != nil || second.Took == commit {
					t.Errorf("%s: of 3 the second one is granted 2: %t, %v", key, second.Took, err)
				}
			}
		}
	})
}

// The transaction that acquires has not ended when the release is sent: the release must wait for it.
func TestReleaseMeetsItsAcquire(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		op := limiter.Op{Name: "l", Key: "k", Policy: places(2), Cost: 1, Hold: time.Hour, Timeout: time.Minute}
		for id := range 4 {
			commit := id%2 == 0
			op.Kind, op.ID, op.Key = limiter.OpAcquire, int64(10+id), fmt.Sprint(id)
			if id < 2 { // otherwise the transaction adds the row
				do(t, store, op)
			}
			tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
			op.ID = int64(20 + id)
			do(t, storeOn(t, tx, schema), op)
			op.Kind = limiter.OpRelease
			hasty := op
			hasty.Timeout = 4 * timeout // as in TestTimeLimitEndsTheWaitForARow
			testenv.ErrorIs(t, testenv.ErrorOf(store.Do(bounded(t), hasty)), limiter.ErrNotApplied, "a release whose time ends")
			answer := d.send(bounded(t), t, store, op)
			end(t, tx, commit)
			if s, err := answer(); err != nil || s.Took != commit {
				t.Errorf("there was a row %t, commit %t: the release found a lease: %t, %v", id < 2, commit, s.Took, err)
			}
		}
	})
}

// A statement reads its clock before it waits for its row. What others take in that time is later.
func TestOthersTakeWhileOneWaits(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		longest := limiter.InFlight{Limit: 1, Hold: limiter.MaxHold}
		for name, c := range map[string]struct {
			policy limiter.Policy
			before int64 // taken
			waits  limiter.OpKind
			later  time.Duration // the clock of what others take
			took   bool
		}{
			"a refund":   {slow(5), 5, limiter.OpRefund, time.Hour, true},
			"an acquire": {longest, 0, limiter.OpAcquire, limiter.ClockTolerance + 250*time.Millisecond, false},
		} {
			store, tx := d.store(t, schema, few(1)), begin(t, connect(t, d.dsn), pgx.ReadCommitted)
			if c.before > 0 {
				do(t, store, take(c.policy, name, c.before))
			}
			now, op := time.Now(), take(c.policy, name, 1)
			op.At = now.Add(c.later).UnixNano()
			do(t, storeOn(t, tx, schema), op)
			op = take(c.policy, name, 2)
			op.Kind = c.waits
			answer := d.send(bounded(t), t, store, op)
			<-time.After(time.Until(now.Add(500 * time.Millisecond))) // the clock of the database is real
			end(t, tx, true)
			if s, err := answer(); err != nil || s.Took != c.took {
				t.Errorf("%s took %t, want %t: %v", name, s.Took, c.took, err)
			}
		}
	})
}

func TestWindowEdgePassesMeanwhile(t *testing.T) {
	const hour = int64(time.Hour)
	const late, early = edge - int64(time.Millisecond), edge + int64(time.Millisecond)
	cases := []struct {
		name     string
		requests [2]request // on a window of 2 with 1 taken
		took     [2]bool
		start    int64 // of the row in the end
		used     int64
		counted  int64 // with CountRejected
	}{
		{"in order of the clock", [2]request{{late, 1}, {early, 1}}, [2]bool{true, true}, edge, 1, 1},
		{"the older one counts in the new window", [2]request{{early, 1}, {late, 1}}, [2]bool{true, true}, edge, 2, 2},
		{"the older one does not reopen the old window", [2]request{{early, 2}, {late, 1}}, [2]bool{true, false}, edge, 2, 3},
		{"the second one finds the window full", [2]request{{late, 1}, {late, 1}}, [2]bool{true, false}, edge - hour, 2, 3},
		{"a clock that is a window behind", [2]request{{early + hour, 1}, {early, 1}}, [2]bool{true, true}, edge + hour, 2, 2},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		policy := limiter.FixedWindow{Limit: 2, Window: time.Hour}
		schema := d.schema(t)
		store := d.store(t, schema, few(2))
		for _, policy.CountRejected = range []bool{false, true} {
			for _, c := range cases {
				d.exec(t, "TRUNCATE "+schema+".limiter_fixed_windows")
				first := take(policy, "k", 1)
				first.At = edge - int64(time.Second)
				do(t, store, first)
				for i, s := range d.queued(t, store, schema, policy, c.requests) {
					if s.Took != c.took[i] {
						t.Errorf("%s, %+v: take %d: Took = %t, want %t", c.name, policy, i, s.Took, c.took[i])
					}
				}
				op := look(policy, "k")
				op.At = max(c.start, first.At)
				want := c.used
				if policy.CountRejected {
					want = c.counted
				}
				if row := do(t, store, op).Row; row.Start != c.start || row.Used != want {
					t.Errorf("%s, %+v: %d used in window %v, want %d in %v", c.name, policy,
						row.Used, time.Duration(row.Start-edge), want, time.Duration(c.start-edge))
				}
			}
		}
	})
}

func TestSecondTakeHasAnOlderClock(t *testing.T) {
	const step, second = int64(time.Hour), int64(time.Second)
	cases := []struct {
		requests [2]request // on a bucket of 3 that is full again at edge + 1 step
		took     bool       // the second one
		fullAt   int64      // in the end
	}{
		{[2]request{{edge + 2*step, 1}, {edge + 2*step - second, 1}}, true, edge + 4*step},
		{[2]request{{edge + 2*step, 2}, {edge + 2*step - second, 1}}, false, edge + 4*step},
		// By more than the tolerance: the clock was stepped back, and the debt stays.
		{[2]request{{edge + 2*step, 1}, {edge + second, 1}}, true, edge + second + 2*step},
		{[2]request{{edge + 2*step + second, 3}, {edge + 2*step, 1}}, false, edge + 5*step + second},
	}
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, few(2))
		for i, c := range cases {
			d.exec(t, "TRUNCATE "+schema+".limiter_token_buckets")
			first := take(slow(3), "k", 1)
			first.At = edge
			do(t, store, first)
			states := d.queued(t, store, schema, slow(3), c.requests)
			fullAt := query[int64](t, d, "SELECT full_at FROM "+schema+".limiter_token_buckets")
			if !states[0].Took || states[1].Took != c.took || fullAt != c.fullAt {
				t.Errorf("case %d: Took = %t, %t, full at %v; want true, %t, %v", i, states[0].Took, states[1].Took,
					time.Duration(fullAt-edge), c.took, time.Duration(c.fullAt-edge))
			}
		}
	})
}

// A trigger skips each write, so operations lose every race.
func TestEveryRaceIsLost(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		r := newTracer(false)
		p := pool(t, d.dsn, r.in)
		store := storeOn(t, p, schema)
		do(t, store, take(limiter.PerHour(3), secret, 2))
		d.trigger(t, schema, "skip", "BEFORE INSERT OR UPDATE", "RETURN NULL;")
		locked := []string{"begin isolation level read committed", "bucketKeyLock", "bucketLock", "bucketRead", "bucketSwap", "commit"}
		settled := slices.Concat([]string{"bucketRead", "bucketSwap"}, locked, locked)
		for kind, first := range map[limiter.OpKind][]string{
			limiter.OpTake: {"bucketTake"}, limiter.OpCharge: {"bucketTake"}, limiter.OpBlock: nil,
		} {
			op, steps := take(limiter.PerHour(3), secret, 1), slices.Concat(first, settled)
			op.Kind = kind
			r.take()
			s, err := store.Do(bounded(t), op)
			if kind != limiter.OpTake {
				wantError(t, err, limiter.ErrNotApplied)
			} else if err != nil || s.Took || s.Now == 0 {
				t.Errorf("a take: %+v, %v; want a refusal", s, err)
			}
			if sent := r.take(); !slices.Equal(sent, steps) {
				t.Errorf("operation %d sent\n%q, want\n%q", kind, sent, steps)
			}
			for n, step := range slices.DeleteFunc(steps, func(s string) bool { return s == "bucketKeyLock" }) { // the error of each comes back
				conn, err := p.Acquire(bounded(t)) // where nothing is sent again
				must(t, err)
				i := 0
				r.fails = func(string) bool { i++; return i == n+1 }
				_, err = storeOn(t, conn, schema).Do(bounded(t), op)
				r.fails = nil
				conn.Release()
				wantError(t, err, map[bool]error{true: limiter.ErrOutcomeUnknown, false: limiter.ErrNotApplied}[step == "commit"])
				if sent := len(r.take()); sent < n+1 || sent > n+2 { // the last one may be a rollback
					t.Errorf("operation %d whose step %d, %s, fails sent %d statements", kind, n, step, sent)
				}
			}
		}
		// The row has another policy. A look at it would wait for the second take alone.
		larger := limiter.TokenBucket{Capacity: 4, Refill: 3, Interval: time.Hour}
		takes := []limiter.Op{take(larger, secret, 1), take(larger, secret, 2)}
		states, err := postgres.RowLocked{Store: store}.Take(bounded(t), takes...)
		must(t, err)
		row := rows{connect(t, d.dsn), schema}.Read(t, takes[0])
		for i, got := range states {
			var want limiter.State
			row, want = takes[i].Apply(row, got.Now)
			if got.Took || got.Wait != want.Wait {
				t.Errorf("take %d: %+v, want a refusal with Wait %d", i, got, want.Wait)
			}
		}
	})
}
