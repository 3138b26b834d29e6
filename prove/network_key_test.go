package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// oneKey is callers of one store that take from one bucket.
type oneKey struct {
	*load
	lim   *limiter.Limiter
	dsn   string        // of the server itself
	limit time.Duration // of a call
}

// keyFault is a fault that hits single calls, and what to expect of them.
type keyFault func(t *testing.T, r *campaign.Round, k oneKey)

// keyRow is a row in which a fault hits single calls. of returns how the store reaches the server, and the
// fault. After the fault the store must work again, and what is stored must agree with the answers.
func keyRow(name string, limit time.Duration, of func(t *testing.T, server *cluster.Cluster) (dsn string, fault keyFault)) networkFault {
	return networkFault{name, func(t *testing.T, server *cluster.Cluster) func(*testing.T, *campaign.Round) {
		dsn, fault := of(t, server)
		return func(t *testing.T, r *campaign.Round) {
			l := newLoad(t, stores(t, 1, dsn), limiter.WithTimeout(limit))
			k := oneKey{l, l.limiters[0][0], server.DSN(), limit}
			k.renew(t, k.dsn)
			fault(t, r, k)
			k.works(t, r)
			k.exact(t, r, k.dsn)
		}
	}}
}

// works waits until a take is granted.
func (k oneKey) works(t *testing.T, r *campaign.Round) {
	t.Helper()
	k.grants(t, r, k.lim, probedKey, time.Now())
}

// fails takes once. The take must fail in time, in one of the classes. It returns the text of the error.
func (k oneKey) fails(t *testing.T, r *campaign.Round, during func(), classes ...string) (text string) {
	t.Helper()
	var (
		class string
		err   error
		took  time.Duration
		call  sync.WaitGroup
	)
	delay := timerDelay()
	call.Go(func() {
		began := time.Now()
		class, err = k.take(t.Context(), k.lim, probedKey, 1)
		took = time.Since(began)
	})
	during()
	call.Wait()
	lag := delay()
	r.Most("answer", took)
	r.Most("answer later than its limit", max(0, took-k.limit))
	testenv.Equal(t, took <= k.limit+lateness()+lag, true, "it was answered after", took, "want at most", k.limit)
	r.Count("meanwhile "+class, 1)
	testenv.Equal(t, slices.Contains(classes, class), true, "it is", class, "want one of", classes, err)
	return fmt.Sprint(err)
}

// holdBy executes a statement in a transaction that stays open until release is called.
func holdBy(t *testing.T, dsn, sql string) (release func()) {
	t.Helper()
	conn := connection(t, dsn)
	executeOn(t, conn, "BEGIN", sql)
	return func() { _ = conn.Close(context.Background()) }
}

// keyRows are the rows whose faults hit single calls.
func keyRows() []networkFault {
	return []networkFault{
		keyRow("pgbouncer limits: max_client_conn", limiter.DefaultTimeout, func(t *testing.T, server *cluster.Cluster) (string, keyFault) {
			p := dbtest.NewPooler(t, server.DSN(), "max_client_conn = 3")
			return behind(p) + "&pool_max_conns=8", func(t *testing.T, r *campaign.Round, k oneKey) {
				var others []*pgx.Conn
				admitted := await(t, waitLimit, func() bool {
					other, err := pgx.Connect(t.Context(), behind(p))
					if err == nil { // PgBouncer counts a closed connection until it reads the close
						others = append(others, other)
					}
					return len(others) == 3
				})
				if !admitted {
					t.Fatalf("the pooler admits %d connections, want 3", len(others))
				}
				// The pooler answers while the connection is made, so nothing was sent.
				k.fails(t, r, func() {}, outcome.NotApplied)
				for _, other := range others {
					_ = other.Close(t.Context())
				}
			}
		}),
		keyRow("pgbouncer limits: query_wait_timeout", 4*time.Second, func(t *testing.T, server *cluster.Cluster) (string, keyFault) {
			p := dbtest.NewPooler(t, server.DSN(), "default_pool_size = 1", "query_wait_timeout = 1")
			return behind(p) + "&pool_max_conns=8", func(t *testing.T, r *campaign.Round, k oneKey) {
				k.works(t, r)
				release := holdBy(t, behind(p), "SELECT") // uses the only session of the server
				began := time.Now()
				k.fails(t, r, func() {
					wait(t.Context(), 1500*time.Millisecond)
					release()
				}, outcome.Unknown, outcome.NotApplied)
				testenv.Equal(t, time.Since(began) > k.limit, false, "it was not the pooler that ended it")
			}
		}),
		keyRow("pgbouncer: server crash behind it", waitLimit, func(t *testing.T, server *cluster.Cluster) (string, keyFault) {
			between := cutproxy.New(t, server.Port())
			p := dbtest.NewPooler(t, dsnAt(between.Port()), "server_login_retry = 1")
			return behind(p) + "&pool_max_conns=8", func(t *testing.T, r *campaign.Round, k oneKey) {
				k.works(t, r)
				release := holdBy(t, k.dsn, "SELECT FROM limiter_token_buckets FOR UPDATE")
				text := k.fails(t, r, func() {
					until(t, k.dsn, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
					between.Break()
					r.Count(campaign.Cuts, 1)
					release()
				}, outcome.Unknown)
				testenv.Equal(t, strings.Contains(text, "08P01"), true, "the error is that of the pooler:", text)
			}
		}),
		keyRow("ctx cancel mid-flight", limiter.DefaultTimeout, func(_ *testing.T, server *cluster.Cluster) (string, keyFault) {
			return server.DSN() + "&pool_max_conns=8", canceledMidFlight
		}),
	}
}

// canceledMidFlight lets callers leave at any time in their calls.
func canceledMidFlight(t *testing.T, r *campaign.Round, k oneKey) {
	// lingering is for how long a statement may continue, and its caller wait for it, when the caller has left.
	const lingering = 100 * time.Millisecond
	var mu sync.Mutex
	classes := map[string]int64{}
	var longest time.Duration
	delay := timerDelay()
	stop := repeat(r.Rand, 16, func(own *rand.Rand, _ int) {
		key := fmt.Sprint(own.IntN(20))
		ctx, cancel := context.WithCancel(t.Context())
		after := time.Duration(own.Int64N(int64(3 * time.Millisecond)))
		began := time.Now()
		time.AfterFunc(after, cancel)
		res, err := k.lim.Allow(ctx, key)
		took := time.Since(began)
		class := outcome.Of(res.Allowed, err)
		k.noteLeaver(k.lim, key, 1, class, err)
		mu.Lock()
		defer mu.Unlock()
		classes[class]++
		longest = max(longest, took-after)
	})
	wait(t.Context(), 500*time.Millisecond)
	stop()
	lag := delay()
	r.Most("answer after the caller has left", longest)
	testenv.Equal(t, longest <= lingering+lateness()+lag, true, "a caller who left was answered", longest, "later, where timers ring late by", lag)
	for class, n := range classes {
		r.Count("after a caller left: "+class, n)
		if class != outcome.Carried && class != outcome.Canceled && class != outcome.CanceledLate {
			t.Errorf("%d answers are %s", n, class)
		}
	}
}
