package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

var must = testenv.Must

// testTimeout bounds whatever a test waits for.
const testTimeout = 30 * time.Second

// workers is how many goroutines call at once where calls race.
const workers = 64

// slow is a policy whose tokens do not come back while a test runs.
func slow(capacity int64) limiter.TokenBucket {
	return limiter.TokenBucket{Capacity: capacity, Refill: 1, Interval: time.Hour}
}

// long is a window that does not end while a test runs: the next one of 30 years
// begins in 2029.
func long(limit int64) limiter.FixedWindow {
	return limiter.FixedWindow{Limit: limit, Window: 262_980 * time.Hour}
}

// counting is long with CountRejected.
func counting(limit int64) limiter.FixedWindow {
	w := long(limit)
	w.CountRejected = true
	return w
}

// places is a limit of leases that do not end while a test runs.
func places(limit int64) limiter.InFlight { return limiter.InFlight{Limit: limit, Hold: time.Hour} }

// onPostgres runs a test in a database of its own on every server.
func onPostgres(t *testing.T, run func(t *testing.T, d *database)) {
	t.Helper()
	t.Parallel()
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) { run(t, newDatabase(t, server)) })
}

// inSchema is onPostgres with the tables in a schema of their own.
func inSchema(t *testing.T, run func(t *testing.T, d *database, schema string)) {
	t.Helper()
	onPostgres(t, func(t *testing.T, d *database) { run(t, d, d.schema(t)) })
}

// bounded is the context of the test with a limit.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// few makes a pool of n connections.
func few(n int32) func(*pgxpool.Config) { return func(c *pgxpool.Config) { c.MaxConns = n } }

// store makes a Store on a pool of its own, of eight connections unless change
// says otherwise.
func (d *database) store(t *testing.T, schema string, change func(*pgxpool.Config), opts ...postgres.Option) *postgres.Store {
	t.Helper()
	if change == nil {
		change = few(8)
	}
	return storeOn(t, pool(t, d.dsn, change), schema, opts...)
}

func storeOn(t testing.TB, db postgres.DB, schema string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	store, err := postgres.New(db, append([]postgres.Option{postgres.WithSchema(schema)}, opts...)...)
	must(t, err)
	return store
}

// opened is a store from Open, which the test closes in the end.
func opened(t testing.TB, dsn string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(dsn, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	return store
}

func newLimiter(t testing.TB, store limiter.Store, policy limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	// What is decided is tested, not how fast a busy machine lets it; options may say otherwise.
	l, err := limiter.New(store, "test", policy, append([]limiter.Option{limiter.WithTimeout(testTimeout)}, opts...)...)
	must(t, err)
	return l
}

// take is a take from a key or, under an InFlight, an acquire of a new lease.
func take(policy limiter.Policy, key string, cost int64) limiter.Op {
	op := limiter.Op{Kind: limiter.OpTake, Name: "test", Key: key, Policy: policy, Cost: cost}
	if p, ok := policy.(limiter.InFlight); ok {
		op.Kind, op.ID, op.Hold = limiter.OpAcquire, 1+rand.Int64N(1<<62), p.Hold
	}
	return op
}

func look(policy limiter.Policy, key string) limiter.Op {
	return limiter.Op{Kind: limiter.OpLook, Name: "test", Key: key, Policy: policy}
}

// do carries op out and fails the test on an error.
func do(t *testing.T, store limiter.Store, op limiter.Op) limiter.State {
	t.Helper()
	s, err := store.Do(bounded(t), op)
	if err != nil {
		t.Fatalf("Do(%+v): %v", op, err)
	}
	return s
}

// wantLeft fails the test unless a key has exactly so many units left. It takes them.
func wantLeft(t *testing.T, store limiter.Store, op limiter.Op, left int64, what string) {
	t.Helper()
	if op.Cost = left; left > 0 && !do(t, store, op).Took {
		t.Errorf("%s: %d are not left", what, left)
	}
	if op.Cost = 1; do(t, store, op).Took {
		t.Errorf("%s: more than %d were left", what, left)
	}
}

// query reads one value.
func query[T any](t *testing.T, d *database, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := d.db.QueryRowContext(bounded(t), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// trigger runs a body in PL/pgSQL before or after each of some changes of the tables' rows.
func (d *database) trigger(t *testing.T, schema, name, when, body string) {
	t.Helper()
	d.exec(t, fmt.Sprintf("CREATE FUNCTION %s.%s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s END $$", schema, name, body))
	for _, table := range tables.All {
		d.exec(t, fmt.Sprintf("CREATE TRIGGER %s %s ON %s.%s FOR EACH ROW EXECUTE FUNCTION %[3]s.%[1]s()", name, when, schema, table.Name))
	}
}

// allTables returns the names of all tables of a schema, separated by commas.
func allTables(schema string) string { return rowtest.SQL{Schema: schema}.Names() }

// useUp acquires all n connections of a pool.
func useUp(t *testing.T, p *pgxpool.Pool, n int) (release func()) {
	t.Helper()
	held := make([]*pgxpool.Conn, n)
	for i := range held {
		conn, err := p.Acquire(bounded(t))
		must(t, err)
		held[i] = conn
	}
	return func() {
		for _, conn := range held {
			conn.Release()
		}
	}
}

// wrap changes each connection that a pool makes.
func wrap(config *pgx.ConnConfig, change func(net.Conn) net.Conn) {
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			conn = change(conn)
		}
		return conn, err
	}
}

// waitFor waits until ready reports true.
func waitFor(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for ctx := bounded(t); !ready(); {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// each calls f in n goroutines with their numbers, and waits for all of them.
func each(n int, f func(worker int)) {
	var wait sync.WaitGroup
	begin := make(chan struct{})
	for worker := range n {
		wait.Go(func() {
			<-begin
			f(worker)
		})
	}
	close(begin)
	wait.Wait()
}

// tally counts what each key was granted, and calls.
type tally struct {
	mu      sync.Mutex
	granted map[string]int64
	calls   map[string]int64
}

func newTally() *tally { return &tally{granted: map[string]int64{}, calls: map[string]int64{}} }

func (y *tally) allow(t *testing.T, l *limiter.Limiter, key string, cost int64) {
	r, err := l.AllowN(t.Context(), key, cost)
	if err != nil {
		t.Errorf("AllowN: %v", err)
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.calls[key]++
	if r.Allowed {
		y.granted[key] += cost
	}
}

// secret is a key that no error text may hold.
const secret = "secret-key-of-a-client"

// wantError checks the classes of an error and that it does not tell the key.
func wantError(t *testing.T, err error, classes ...error) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that matches %v", classes)
		return
	}
	for _, class := range []error{limiter.ErrInvalid, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrCanceled, limiter.ErrKeyBusy} {
		testenv.Equal(t, errors.Is(err, class), slices.Contains(classes, class), err, "matches", class)
	}
	for _, key := range []string{secret, "7365637265742d6b6579"} { // and in hex
		if strings.Contains(err.Error(), key) {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}

// accept listens until the test ends, and serves every connection on its own.
func accept(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// holdLock runs sql in a transaction that keeps its locks until it is released.
func (d *database) holdLock(t *testing.T, statement string) (release func()) {
	t.Helper()
	tx, err := d.db.BeginTx(bounded(t), nil)
	must(t, err)
	if _, err := tx.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	release = func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("release: %v", err)
		}
	}
	t.Cleanup(release)
	return release
}

// waiting is how many backends wait for a lock.
func (d *database) waiting(ctx context.Context, t *testing.T) (n int) {
	t.Helper()
	must(t, d.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
	return n
}

// blocked waits until n backends wait for a lock.
func (d *database) blocked(t *testing.T, n int) {
	t.Helper()
	ctx := bounded(t)
	waitFor(t, fmt.Sprintf("%d backends are blocked", n), func() bool { return d.waiting(ctx, t) == n })
}

// waits returns when a backend waits for a lock, or when done is closed. It reports whether one waits.
func (d *database) waits(t *testing.T, done <-chan struct{}) bool {
	t.Helper()
	for ctx := bounded(t); d.waiting(ctx, t) == 0; {
		select {
		case <-done:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return true
}

// send sends op and returns when it waits for a lock. answer waits for its outcome.
func (d *database) send(ctx context.Context, t *testing.T, store limiter.Store, op limiter.Op) (answer func() (limiter.State, error)) {
	t.Helper()
	var s limiter.State
	var err error
	var answered sync.WaitGroup
	answered.Go(func() { s, err = store.Do(ctx, op) })
	d.blocked(t, 1)
	return func() (limiter.State, error) {
		answered.Wait()
		return s, err
	}
}

// terminateBlocked ends the session that waits for a lock. One statement finds and ends it: an operation's first
// session waits for 20 ms only.
func (d *database) terminateBlocked(t *testing.T) {
	t.Helper()
	waitFor(t, "a session that waits for a lock is terminated", func() bool {
		return query[bool](t, d, `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
}
