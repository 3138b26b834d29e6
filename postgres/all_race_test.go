package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// allMixture is limiters for decisions over several limits, on one store.
type allMixture struct {
	store  *postgres.Store
	exact  []*limiter.Limiter // of one policy each, in use on one key
	others []*limiter.Limiter // of rows with two policies, some of which are reset
	own    []*limiter.Limiter // of a key for each decision
}

// allLimit is the limit of each exact row. The decisions ask for more.
const allLimit = 300

func newAllMixture(t *testing.T, store *postgres.Store) *allMixture {
	t.Helper()
	named := func(name string, p limiter.Policy) *limiter.Limiter {
		l, err := limiter.New(store, name, p, limiter.WithTimeout(testTimeout))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	m := &allMixture{store: store}
	for i := range 4 {
		m.exact = append(m.exact, named(fmt.Sprint("exact", i), slow(allLimit)), named(fmt.Sprint("exact", i), long(allLimit)))
	}
	for i := range 2 { // of the same rows
		limit := 5000 + int64(i)
		m.others = append(m.others, named("other", slow(limit)), named("other", long(limit)), named("reset", slow(limit)))
	}
	m.own = []*limiter.Limiter{named("own", slow(2)), named("own", long(2))}
	return m
}

// ledger counts what each row was charged, apart from the store.
type ledger struct {
	exact   [8]atomic.Int64
	granted atomic.Int64
	refused atomic.Int64
	mu      sync.Mutex
	own     map[string]bool // whether the decision of this key was granted
}

// decide makes one decision over 1 to 8 limits in any order.
func (m *allMixture) decide(ctx context.Context, r *rand.Rand, key string, l *ledger) error {
	claims := []limiter.Claim{{Limiter: m.own[r.IntN(2)], Key: key}}
	var charged [8]int64
	for _, i := range r.Perm(len(m.exact))[:r.IntN(6)] {
		cost := 1 + r.Int64N(3)
		claims = append(claims, limiter.Claim{Limiter: m.exact[i], Key: "k", Cost: cost})
		charged[i] += cost
		if r.IntN(8) == 0 { // the same row twice
			claims = append(claims, limiter.Claim{Limiter: m.exact[i], Key: "k"})
			charged[i]++
		}
	}
	if r.IntN(3) == 0 {
		claims = append(claims, limiter.Claim{Limiter: m.others[r.IntN(len(m.others))], Key: "k"})
	}
	if len(claims) > limiter.MaxClaims {
		return nil
	}
	r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
	res, err := limiter.AllowAll(ctx, claims...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.own[key] = res.Allowed
	l.mu.Unlock()
	if !res.Allowed {
		l.refused.Add(1)
		if !slices.ContainsFunc(res.Each, func(r limiter.Result) bool { return !r.Allowed }) {
			return fmt.Errorf("refused although each limit had room: %+v", res)
		}
		return nil
	}
	l.granted.Add(1)
	for i, cost := range charged {
		l.exact[i].Add(cost)
	}
	if i := slices.IndexFunc(claims, func(c limiter.Claim) bool { return c.Key == "k" && slices.Contains(m.exact, c.Limiter) }); i >= 0 && r.IntN(3) == 0 {
		c := claims[i]
		back, err := c.Limiter.RefundOf(ctx, c.Key, 1, res.Each[i])
		if err != nil {
			return err
		}
		if back {
			l.exact[slices.Index(m.exact, c.Limiter)].Add(-1)
		}
	}
	return nil
}

// beside carries out another operation on the same rows.
func (m *allMixture) beside(ctx context.Context, r *rand.Rand, l *ledger) error {
	switch r.IntN(6) {
	case 0:
		_, err := m.store.Sweep(ctx, 100)
		return err
	case 1:
		i := r.IntN(2)
		return m.others[3*i+2].Reset(ctx, "k")
	case 2:
		_, err := m.others[r.IntN(len(m.others))].Allow(ctx, "k")
		return err
	default:
		i := r.IntN(len(m.exact))
		res, err := m.exact[i].Allow(ctx, "k")
		if res.Allowed {
			l.exact[i].Add(1)
		}
		return err
	}
}

// deadlocks counts the victims of deadlocks among the statements of a pool.
type deadlocks struct{ atomic.Int64 }

func (*deadlocks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (d *deadlocks) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if e, ok := errors.AsType[*pgconn.PgError](data.Err); ok && e.Code == "40P01" {
		d.Add(1)
	}
}

// All workers of two stores name the limits in any order, beside takes that share statements, refunds,
// resets, other policies and sweeps. Each decision has a row of its own, which tells whether it was
// charged. The other rows tell how much was charged in all.
func TestDecisionsOverSeveralLimitsChargeAllOrNoneInAnyInterleaving(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) { chargeAllOrNone(t, d, 15) })
}

func chargeAllOrNone(t *testing.T, d *database, rounds int, opts ...postgres.Option) {
	t.Helper()
	schema := d.schema(t)
	victims := new(deadlocks)
	var pools []*pgxpool.Pool
	var mixtures []*allMixture
	for range 2 {
		p := pool(t, d.dsn, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 12, victims })
		pools = append(pools, p)
		mixtures = append(mixtures, newAllMixture(t, storeOn(t, p, schema, opts...)))
	}
	l := &ledger{own: map[string]bool{}}
	seed := rand.Uint64()
	each(workers, func(worker int) {
		r := rand.New(rand.NewPCG(seed, uint64(worker)))
		m := mixtures[worker%2]
		for n := range rounds {
			err := m.decide(t.Context(), r, fmt.Sprintf("%d-%d", worker, n), l)
			if r.IntN(2) == 0 {
				err = errors.Join(err, m.beside(t.Context(), r, l))
			}
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	})
	d.checkLedger(t, schema, seed, l)
	for _, p := range pools {
		p.Close()
	}
	d.wantNoDeadlocks(t, victims)
}

// checkLedger compares the rows with what was granted.
func (d *database) checkLedger(t *testing.T, schema string, seed uint64, l *ledger) {
	t.Helper()
	if l.granted.Load() == 0 || l.refused.Load() == 0 {
		t.Errorf("seed %d: %d granted and %d refused, want a mixture", seed, l.granted.Load(), l.refused.Load())
	}
	conn := connect(t, d.dsn)
	r := rows{conn, schema}
	now := time.Now().UnixNano()
	used := func(op limiter.Op) int64 {
		row := r.Read(t, op)
		if _, ok := op.Policy.(limiter.FixedWindow); ok {
			return row.Used
		}
		step := int64(slow(1).Step())
		return max(0, row.FullAt-now+step-1) / step
	}
	for i := range l.exact {
		op := limiter.Op{Name: fmt.Sprint("exact", i/2), Key: "k", Policy: slow(allLimit)}
		if i%2 == 1 {
			op.Policy = long(allLimit)
		}
		if got, want := used(op), l.exact[i].Load(); got != want || want > allLimit {
			t.Errorf("seed %d: row %d of %+v was charged %d, want %d of %d", seed, i, op.Policy, got, want, allLimit)
		}
	}
	for key, granted := range l.own {
		n := used(limiter.Op{Name: "own", Key: key, Policy: slow(2)}) + used(limiter.Op{Name: "own", Key: key, Policy: long(2)})
		if want := map[bool]int64{true: 1}[granted]; n != want {
			t.Errorf("seed %d: the row of a decision was charged %d, want %d", seed, n, want)
		}
	}
}

// wantNoDeadlocks checks the statistics of the database when all pools are closed.
func (d *database) wantNoDeadlocks(t *testing.T, victims *deadlocks) {
	t.Helper()
	ctx := bounded(t)
	for query[int](t, d, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`) > 0 {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("sessions remain")
		}
	}
	if n := query[int64](t, d, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n+victims.Load() > 0 {
		t.Errorf("%d deadlocks, of which %d were seen, want none", n, victims.Load())
	}
}

// WithCitus also works on tables that are not distributed.
func TestCitusDecisionsOverSeveralLimitsChargeAllOrNone(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) { chargeAllOrNone(t, d, 15, postgres.WithCitus()) })
}
