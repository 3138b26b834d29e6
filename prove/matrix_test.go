package prove_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// lateness is how much later than its deadline an answer may come. CI is set on busy machines.
func lateness() time.Duration {
	if os.Getenv("CI") != "" {
		return 500 * time.Millisecond
	}
	return 50 * time.Millisecond
}

const (
	dialLimit = 3 * time.Second // how long a store waits for a connection that is being made
	// heldLimit is the time limit of a take that is under way when a fault comes. A deadlock needs 1 s of it.
	heldLimit = 5 * time.Second
)

type fault struct {
	name     string
	class    string                               // of the first failure
	state    string                               // the SQLSTATE of the first failure, if it has one
	also     []string                             // classes that later failures may also have
	cold     bool                                 // the store has no connection when the fault begins
	held     bool                                 // a take waits for a row when the fault begins
	probes   int                                  // the most takes during the fault; 0 means enough failures to open the breaker
	slow     bool                                 // each failure takes seconds: the smallest tier has two
	answers  bool                                 // a failure shows that the server works, so the breaker stays closed
	fresh    bool                                 // each take is from a new key
	dsn      func(server *cluster.Cluster) string // of the store; nil means that of the superuser
	database string                               // another database than postgres
	begin    func(t *testing.T, on *target) (end func())
}

type target struct {
	server *cluster.Cluster
	pid    int       // of the session with the take that is under way
	holder *pgx.Conn // that has locked the row which that take waits for
}

// probed is a key of the store at which a fault is looked at.
type probed struct {
	fault
	load  *load
	lim   *limiter.Limiter
	round *campaign.Round
	limit time.Duration // of a take that has a connection
	dials atomic.Int64  // how often one was made, or tried to be
	first error         // that failed

	count, failures int
}

const (
	probedKey = "probed"
	// enough failures open the breaker, and some more.
	enough = 8
	cheap  = time.Millisecond // what half of the answers take at most while the breaker is open
)

// look carries out one fault, and looks at what comes of it.
func (f fault) look(t *testing.T, r *campaign.Round, server *cluster.Cluster) {
	dsn, as := server.DSN(), server.DSN()
	if f.dsn != nil {
		as = f.dsn(server)
	}
	if f.database != "" {
		dsn = inDatabase(server, f.database)
		as = dsn
	}
	execute(t, dsn, "TRUNCATE "+tables.Names)
	until(t, dsn, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = '"+application+"'")
	limit := limiter.DefaultTimeout
	if f.held {
		limit = heldLimit
	}
	p := &probed{fault: f, limit: limit, round: r}
	pool := p.pool(t, as)
	store, err := postgres.New(pool)
	must(t, err)
	p.load = newLoad(t, []limiter.Store{store}, limiter.WithTimeout(limit))
	p.lim = p.load.limiters[0][0]
	if !f.cold {
		p.load.recovers(t, r, time.Now())
		if class, err := p.load.take(t.Context(), p.lim, probedKey, 1); class != outcome.Carried {
			t.Fatalf("before the fault a take is %s: %v", class, err)
		}
	}

	on := &target{server: server}
	var end func()
	if f.held {
		end = p.whileHeld(t, on, dsn)
	} else {
		end = f.begin(t, on)
	}
	probes := f.probes
	switch {
	case f.slow && proof.Tier == campaign.CI:
		probes = 2
	case probes == 0:
		probes = enough
	}
	for range probes {
		if p.probe(t); p.failures >= enough {
			break
		}
	}
	if p.failures >= enough && !f.answers {
		p.whileOpen(t)
	}
	testenv.Equal(t, p.first == nil && f.class != outcome.Carried, false, "no take fails")
	end()
	p.load.recovers(t, r, time.Now())
	pool.Close()
	p.load.exact(t, r, dsn)
	r.Count("faults of the server", 1)
}

// pool is one whose sessions are told from others, and which says when it makes one.
func (p *probed) pool(t *testing.T, dsn string) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(dsn + "&pool_max_conns=2&connect_timeout=3&application_name=" + application)
	must(t, err)
	// The fault must hit a statement, but pgxpool pings a connection that was idle for 1 s.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		p.dials.Add(1)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// whileOpen takes while the breaker is open. Only takes that probe the server may be slow.
func (p *probed) whileOpen(t *testing.T) {
	var took []time.Duration
	for range 50 {
		took = append(took, p.probe(t))
		wait(t.Context(), time.Millisecond)
	}
	slices.Sort(took)
	if half := took[len(took)/2]; half > cheap {
		t.Errorf("half of the answers of an open breaker take more than %v, want at most %v", half, cheap)
	}
	p.round.Count("faults that opened the breaker", 1)
}

// probe takes once, looks at the answer, and returns how long it took.
func (p *probed) probe(t *testing.T) (took time.Duration) {
	key := probedKey
	if p.count++; p.fresh {
		key = fmt.Sprint("probed/", p.count)
	}
	dials, began := p.dials.Load(), time.Now()
	res, err := p.lim.Allow(t.Context(), key)
	took = time.Since(began)
	limit := p.limit
	if p.dials.Load() > dials { // the time limit begins when there is a connection
		limit += dialLimit
	}
	p.round.Most("an answer: "+p.name, took)
	testenv.Equal(t, took <= limit+lateness(), true, "an answer takes", took, "want at most", limit+lateness(), err)

	class := outcome.Of(res.Allowed, err)
	if class != outcome.Misconfigured {
		p.load.note(p.lim, key, 1, class, err)
	}
	if class == outcome.Carried {
		return took
	}
	p.failures++
	switch {
	case p.state != "" && errors.Is(err, context.DeadlineExceeded):
		p.round.Count("answers that did not come in time", 1) // on a machine that does other things
	case p.first == nil:
		p.first = err
		if class != p.class || p.state != "" && sqlState(err) != p.state {
			t.Errorf("the first failure is %s with %q, want %s with %q: %v", class, sqlState(err), p.class, p.state, err)
		}
	case class != p.class && !slices.Contains(p.also, class):
		t.Errorf("a failure is %s, want %s or %q: %v", class, p.class, p.also, err)
	case p.answers && sqlState(err) != p.state:
		t.Errorf("a failure is not the server's own answer, which was %q before: %v", p.state, err)
	}
	return took
}

// whileHeld begins the fault while a take waits for a row that another session has locked.
func (p *probed) whileHeld(t *testing.T, on *target, dsn string) (end func()) {
	on.holder = connection(t, dsn)
	defer on.holder.Close(context.Background())
	executeOn(t, on.holder, "BEGIN", "SELECT FROM limiter_token_buckets FOR UPDATE")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.probe(t)
	}()
	// The first statement waits only 20 ms for the row.
	waits := `FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '0.1 s' AND application_name = '` + application + `'`
	until(t, dsn, "SELECT count(*) > 0 "+waits)
	on.pid = query[int](t, dsn, "SELECT pid "+waits)
	end = p.begin(t, on)
	select {
	case <-answered:
	case <-time.After(waitLimit):
		t.Fatal("a take is not answered")
	}
	return end
}
