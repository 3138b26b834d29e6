package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/postgres"
)

// leakProbe does everything that can be done with a key, and records what programs say about it.
type leakProbe struct {
	*database
	seen *transcript
	key  string
	opts []limiter.Option
}

func (g *leakProbe) run(t *testing.T) {
	t.Helper()
	g.calls(t)
	g.failures(t)
	g.requests(t)
}

// limiter returns one on a pool of its own, whose tracer and observer listen.
func (g *leakProbe) limiter(t *testing.T, schema string, policy limiter.Policy, change func(*pgxpool.Config), opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	return g.limiterOn(t, g.pool(t, schema, change), policy, opts...)
}

func (g *leakProbe) limiterOn(t *testing.T, store limiter.Store, policy limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	observe := limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		g.seen.add("observer", fmt.Appendf(nil, "%+v %#v", d, d))
		g.failed(d.Err)
	})
	return newLimiter(t, store, policy, append(append(opts, g.opts...), observe)...)
}

func (g *leakProbe) pool(t *testing.T, schema string, change func(*pgxpool.Config)) *postgres.Store {
	t.Helper()
	listen := tracelog.LoggerFunc(func(_ context.Context, level tracelog.LogLevel, msg string, data map[string]any) {
		g.seen.add("pgx's tracer", fmt.Appendf(nil, "%v %s %v %+v", level, msg, data, data))
	})
	return g.store(t, schema, func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.Tracer = &tracelog.TraceLog{Logger: listen, LogLevel: tracelog.LogLevelTrace}
		if change != nil {
			change(c)
		}
	})
}

// failed hears an error out.
func (g *leakProbe) failed(err error) {
	g.seen.add("errors", []byte(keyleak.Text(err)))
	g.seen.add("fields of errors", []byte(keyleak.Fields(err)))
}

func (g *leakProbe) said(r limiter.Result, err error) {
	g.seen.add("results", fmt.Appendf(nil, "%+v %#v", r, r))
	g.failed(err)
}

// calls carries out every operation, in all the ways that there are.
func (g *leakProbe) calls(t *testing.T) {
	t.Helper()
	schema, ctx := g.schema(t), bounded(t)
	for _, policies := range [][2]limiter.Policy{{slow(3), slow(4)}, {long(3), long(4)}, {counting(3), counting(4)}} {
		store := g.pool(t, schema, nil)
		for _, s := range []limiter.Store{store, postgres.RowLocked{Store: store}} {
			g.said(g.limiterOn(t, s, policies[0]).Allow(ctx, g.key))
		}
		l := g.limiterOn(t, store, policies[0], limiter.WithDenyCache(10, time.Minute))
		each(16, func(int) { g.said(l.Allow(ctx, g.key)) })
		g.said(l.Peek(ctx, g.key))
		_, err := l.Refund(ctx, g.key, 1)
		g.failed(err)
		if r, err := l.Reserve(ctx, g.key, 1, time.Hour); err == nil {
			g.said(r.Result, r.Cancel(ctx))
		}
		g.failed(l.Wait(ctx, g.key))
		g.said(l.AllowN(ctx, g.key, 99))
		g.said(l.AllowN(ctx, g.key, -1))
		g.said(g.limiterOn(t, store, policies[1]).Allow(ctx, g.key)) // another policy: the store settles it
		g.failed(l.Reset(ctx, g.key))
		g.said(l.Allow(ctx, g.key))
	}
	store := g.pool(t, schema, nil)
	past := limiter.WithClock(func() time.Time { return time.Unix(1_000_000_000, 0) })
	g.said(g.limiterOn(t, store, limiter.PerSecond(1), past).Allow(ctx, g.key+" swept")) // and the cursor goes by it
	if n, err := store.Sweep(ctx, 10); n == 0 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}
}

// failures provokes an error of every kind.
func (g *leakProbe) failures(t *testing.T) {
	t.Helper()
	schema := g.schema(t)
	checked := g.schema(t)
	g.exec(t, "ALTER TABLE "+checked+".limiter_token_buckets ADD CONSTRAINT never CHECK (granted < 0)")
	lockTimeout := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "30ms" }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.said(g.limiter(t, schema, slow(9), nil).Allow(t.Context(), g.key))
	release := g.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
	for name, c := range map[string]struct {
		class error
		l     *limiter.Limiter
		ctx   context.Context
	}{
		"no tables":    {limiter.ErrMisconfigured, g.limiter(t, "absent", slow(9), nil), t.Context()},
		"constraint":   {limiter.ErrInvalid, g.limiter(t, checked, slow(9), nil), t.Context()},
		"lock timeout": {limiter.ErrNotApplied, g.limiter(t, schema, slow(9), lockTimeout), t.Context()},
		"time limit":   {limiter.ErrNotApplied, g.limiter(t, schema, slow(9), nil, limiter.WithTimeout(time.Second)), t.Context()},
		"canceled":     {limiter.ErrCanceled, g.limiter(t, schema, slow(9), nil), ended},
		"no server":    {limiter.ErrNotApplied, g.limiter(t, schema, slow(9), func(c *pgxpool.Config) { c.ConnConfig.Port = 1 }), t.Context()},
	} {
		res, err := c.l.Allow(c.ctx, g.key)
		if !errors.Is(err, c.class) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
		g.said(res, err)
	}
	g.terminate(t, g.limiter(t, schema, slow(9), nil))
	release()
}

// terminate has the backend terminated that waits for a row, and hears what the server
// tells of its sessions meanwhile.
func (g *leakProbe) terminate(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	g.blocked(t, 0)
	var wait sync.WaitGroup
	wait.Go(func() {
		res, err := l.Allow(bounded(t), g.key)
		if !errors.Is(err, limiter.ErrOutcomeUnknown) {
			t.Errorf("terminated: %v", err)
		}
		g.said(res, err)
	})
	pid := g.blocked(t, 1)
	g.seen.add("pg_stat_activity", []byte(query[string](t, g.database, "SELECT string_agg(a::text, '') FROM pg_stat_activity AS a")))
	query[bool](t, g.database, "SELECT pg_terminate_backend($1)", pid)
	wait.Wait()
}

// requests sends the key over HTTP, to be allowed, refused, refused a decision, and
// found wanting.
func (g *leakProbe) requests(t *testing.T) {
	t.Helper()
	const header = "X-Api-Key"
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, ok := handler.ResultFromContext(r.Context())
		fmt.Fprintf(w, "%+v %t", res, ok)
	})
	opts := []handler.Option{
		handler.LegacyHeaders(), handler.ExposeHeaders(),
		handler.OnError(func(_ *http.Request, err error) { g.failed(err) }),
		handler.OnRefusal(func(_ *http.Request, r limiter.Result) { g.said(r, nil) }),
	}
	schema, statuses := g.schema(t), map[int]bool{}
	for _, in := range []string{schema, schema, "absent"} {
		for _, policy := range []limiter.Policy{slow(1), long(1)} {
			h := handler.New(g.limiter(t, in, policy, nil), handler.Join(handler.Header(header)), opts...)(served)
			for _, lines := range [][]string{{g.key}, {g.key, g.key}} {
				r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
				r.Header[header] = lines
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				statuses[w.Code] = true
				text, err := httputil.DumpResponse(w.Result(), true)
				if err != nil {
					t.Error(err)
				}
				g.seen.add("answers", text)
			}
		}
	}
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadRequest} {
		if !statuses[status] {
			t.Errorf("no request was answered %d", status)
		}
	}
}
