package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// allMixture is limiters for decisions over several limits, on one store.
type allMixture struct {
	store    *postgres.Store
	exact    []*limiter.Limiter    // of one policy each, in use on one key; the ledger counts them
	versions [2][]*limiter.Limiter // of the same two rows by two policies; the ledger counts them
	reset    []*limiter.Limiter    // of a row that is reset
	own      []*limiter.Limiter    // of a key for each decision
}

const (
	// allLimit is the limit of each exact row, and versionLimit that of the rows of two policies. The
	// decisions ask for more.
	allLimit     = 300
	versionLimit = 100
	// allRounds is how many decisions each goroutine makes.
	allRounds = 15
)

func newAllMixture(w worker, store *postgres.Store) *allMixture {
	named := func(name string, p limiter.Policy) *limiter.Limiter {
		l, err := limiter.New(store, name, p, limiter.WithTimeout(testTimeout))
		must(w, err)
		return l
	}
	m := &allMixture{store: store}
	for i := range 4 {
		m.exact = append(m.exact, named(fmt.Sprint("exact", i), slow(allLimit)), named(fmt.Sprint("exact", i), long(allLimit)))
	}
	for i := range m.versions {
		limit := versionLimit + int64(i)
		m.versions[i] = []*limiter.Limiter{named("versions", slow(limit)), named("versions", long(limit))}
		m.reset = append(m.reset, named("reset", slow(limit)))
	}
	m.own = []*limiter.Limiter{named("own", slow(2)), named("own", long(2))}
	return m
}

// ledger counts what each row was charged, apart from the store.
type ledger struct {
	mu       sync.Mutex
	Exact    [8]int64
	Versions [2]int64
	Granted  int64
	Refused  int64
	Own      map[string]bool // whether the decision of this key was granted
	Victims  int64           // statements that failed as deadlock victims
}

func (l *ledger) add(o *ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.Exact {
		l.Exact[i] += o.Exact[i]
	}
	for i := range l.Versions {
		l.Versions[i] += o.Versions[i]
	}
	l.Granted += o.Granted
	l.Refused += o.Refused
	l.Victims += o.Victims
	maps.Copy(l.Own, o.Own)
}

// decide makes one decision over 1 to 8 limits in any order.
func (m *allMixture) decide(ctx context.Context, r *rand.Rand, key string, l *ledger) error {
	var charge ledger
	size := 1 + r.IntN(limiter.MaxClaims)
	claims := []limiter.Claim{{Limiter: m.own[r.IntN(2)], Key: key}}
	claim := func(l *limiter.Limiter, cost int64, charged *int64) {
		if len(claims) < size {
			claims = append(claims, limiter.Claim{Limiter: l, Key: "k", Cost: cost})
			*charged += max(1, cost) // 0 means 1
		}
	}
	i, twoPolicies := r.IntN(2), false
	switch r.IntN(6) {
	case 0:
		claim(m.versions[r.IntN(2)][i], 0, &charge.Versions[i])
	case 1:
		claim(m.reset[r.IntN(2)], 0, new(int64))
	case 2: // no decision can be made for one row by two policies
		twoPolicies = true
		claims = append(claims, limiter.Claim{Limiter: m.versions[0][i], Key: "k"}, limiter.Claim{Limiter: m.versions[1][i], Key: "k"})
	}
	for _, i := range r.Perm(len(m.exact)) {
		claim(m.exact[i], r.Int64N(4), &charge.Exact[i])
		if r.IntN(8) == 0 { // the same row twice
			claim(m.exact[i], 0, &charge.Exact[i])
		}
	}
	r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
	res, err := limiter.AllowAll(ctx, claims...)
	charge.Own = map[string]bool{key: res.Allowed}
	switch {
	case twoPolicies && (res.Allowed || !errors.Is(err, limiter.ErrInvalid)):
		return fmt.Errorf("one row by two policies: %+v, %v", res, err)
	case !twoPolicies && err != nil:
		return err
	case !res.Allowed:
		l.add(&ledger{Refused: 1, Own: charge.Own})
		if !twoPolicies && !slices.ContainsFunc(res.Each, func(r limiter.Result) bool { return !r.Allowed }) {
			return fmt.Errorf("refused although each limit had room: %+v", res)
		}
		return nil
	}
	charge.Granted = 1
	l.add(&charge)
	n := slices.IndexFunc(claims, func(c limiter.Claim) bool { return slices.Contains(m.exact, c.Limiter) })
	if n < 0 || r.IntN(3) > 0 {
		return nil
	}
	back, err := claims[n].Limiter.RefundOf(ctx, claims[n].Key, 1, res.Each[n])
	if back {
		var credit ledger
		credit.Exact[slices.Index(m.exact, claims[n].Limiter)] = -1
		l.add(&credit)
	}
	return err
}

// beside carries out another operation on the same rows.
func (m *allMixture) beside(ctx context.Context, r *rand.Rand, l *ledger) error {
	var charge ledger
	var res limiter.Result
	var err error
	switch i := r.IntN(2); r.IntN(6) {
	case 0:
		_, err = m.store.Sweep(ctx, 100)
	case 1:
		err = m.reset[i].Reset(ctx, "k")
	case 2:
		charge.Versions[i] = 1
		res, err = m.versions[r.IntN(2)][i].Allow(ctx, "k")
	default:
		i := r.IntN(len(m.exact))
		charge.Exact[i] = 1
		res, err = m.exact[i].Allow(ctx, "k")
	}
	if res.Allowed {
		l.add(&charge)
	}
	return err
}

// decisions is half of the goroutines of a test. They name the limits in any order, beside takes that
// share statements, refunds, resets, other policies and sweeps.
func decisions(ctx context.Context, store *postgres.Store, w worker) *ledger {
	m, all := newAllMixture(w, store), &ledger{Own: map[string]bool{}}
	each(workers/2, func(caller int) {
		n := w.Number*workers/2 + caller
		r := rand.New(rand.NewPCG(w.Seed, uint64(n)))
		for round := range allRounds {
			must(w, m.decide(ctx, r, fmt.Sprintf("%d-%d", n, round), all))
			if r.IntN(2) == 0 {
				must(w, m.beside(ctx, r, all))
			}
		}
	})
	return all
}

// Each decision has a row of its own, which tells whether it was charged. The other rows tell how much
// was charged in all.
func TestAllOrNoneOfTwoProcesses(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) { chargeAllOrNone(t, d, worker{}) })
}

func chargeAllOrNone(t *testing.T, d *database, w worker) {
	t.Helper()
	w.DSN, w.Schema, w.Seed = d.dsn, d.schema(t), rand.Uint64()
	all := ledger{Own: map[string]bool{}}
	var reports [2]ledger
	var processes []*exec.Cmd
	for w.Number = range reports {
		job, err := json.Marshal(w)
		must(t, err)
		processes = append(processes, testenv.Self(t, workerVariable+"="+string(job)))
	}
	<-testenv.StartTogether(t, processes, func(i int, out io.Reader) error { return json.NewDecoder(out).Decode(&reports[i]) })
	if t.Failed() {
		t.FailNow()
	}
	for i := range reports {
		all.add(&reports[i])
	}
	t.Logf("seed %d: %d granted, %d refused", w.Seed, all.Granted, all.Refused)
	d.checkLedger(t, w.Schema, w.Seed, &all)
	if !d.citus { // Citus finds deadlocks that do not exist, and other tests use its database
		d.wantNoDeadlocks(t, all.Victims)
	} else if all.Victims > 0 {
		t.Errorf("seed %d: callers saw %d deadlocks, want none", w.Seed, all.Victims)
	}
}

// checkLedger compares the rows with what was granted.
func (d *database) checkLedger(t *testing.T, schema string, seed uint64, l *ledger) {
	t.Helper()
	if l.Granted == 0 || l.Refused == 0 {
		t.Errorf("seed %d: %d granted and %d refused, want a mixture", seed, l.Granted, l.Refused)
	}
	testenv.Equal(t, len(l.Own), workers*allRounds, "decisions, seed", seed)
	conn := connect(t, d.dsn)
	r := rows{conn, schema}
	now := time.Now().UnixNano()
	used := func(name, key string, policy limiter.Policy) (charged, limit int64) {
		row := r.Read(t, limiter.Op{Name: name, Key: key, Policy: policy})
		return rowtest.Used(limiter.KindOf(policy), row, now), row.Limit
	}
	both := []limiter.Policy{slow(1), long(1)}
	for i, want := range l.Exact {
		if got, _ := used(fmt.Sprint("exact", i/2), "k", both[i%2]); got != want || want > allLimit {
			t.Errorf("seed %d: row %d of %T was charged %d, want %d of %d", seed, i, both[i%2], got, want, allLimit)
		}
	}
	for i, want := range l.Versions {
		got, limit := used("versions", "k", both[i])
		// A change of policy keeps the tokens left. The bucket may have begun with those of either policy.
		if limiter.KindOf(both[i]) == limiter.KindBucket {
			got -= limit - versionLimit
			if got == want-1 {
				got++
			}
		}
		if got != want || want > versionLimit+1 {
			t.Errorf("seed %d: the row of two policies of %T was charged %d, want %d of %d", seed, both[i], got, want, versionLimit+1)
		}
	}
	for key, granted := range l.Own {
		bucket, _ := used("own", key, both[0])
		window, _ := used("own", key, both[1])
		testenv.Equal(t, bucket+window, map[bool]int64{true: 1}[granted], "what the row of a decision was charged, seed", seed)
	}
}

// wantNoDeadlocks checks the statistics of the database when all other sessions have ended.
func (d *database) wantNoDeadlocks(t *testing.T, victims int64) {
	t.Helper()
	waitFor(t, "all other sessions have ended", func() bool {
		return query[int](t, d, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`) == 0
	})
	if n := query[int64](t, d, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n+victims > 0 {
		t.Errorf("%d deadlocks, of which %d were seen, want none", n, victims)
	}
}

func TestCitusAllOrNone(t *testing.T) {
	onBoth(t, func(t *testing.T, d *database) { chargeAllOrNone(t, d, worker{Citus: true}) })
}

// workerVariable makes a process of this test binary a worker. It is a [worker] as JSON.
const workerVariable = "LIMITER_TEST_WORKER"

// worker is what a process has to do.
type worker struct {
	DSN, Schema string
	Citus       bool
	Number      int
	Seed        uint64
}

// A worker neither runs tests nor starts servers.
func init() {
	if job := os.Getenv(workerVariable); job != "" {
		var w worker
		must(w, json.Unmarshal([]byte(job), &w))
		w.work()
		os.Exit(0)
	}
}

// Helper and Fatal make a worker what [must] needs.
func (worker) Helper() {}

func (worker) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// work waits until all workers are ready, makes its decisions, and prints its ledger.
func (w worker) work() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
	defer cancel()
	config, err := pgxpool.ParseConfig(w.DSN)
	must(w, err)
	sent := new(counter)
	config.MaxConns, config.ConnConfig.Tracer = 12, sent
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(w, err)
	defer pool.Close()
	opts := []postgres.Option{postgres.WithSchema(w.Schema)}
	if w.Citus {
		opts = append(opts, postgres.WithCitus())
	}
	store, err := postgres.New(pool, opts...)
	must(w, err)
	must(w, pool.Ping(ctx))
	must(w, testenv.AwaitStart())
	l := decisions(ctx, store, w)
	l.Victims = sent.deadlocks.Load()
	must(w, json.NewEncoder(os.Stdout).Encode(l))
}

// counter counts the statements of a pool, and those that were the victims of deadlocks.
type counter struct {
	atomic.Int64
	deadlocks atomic.Int64
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if e, ok := errors.AsType[*pgconn.PgError](data.Err); ok && e.Code == "40P01" {
		c.deadlocks.Add(1)
	}
}
