package postgres_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// talkative are settings with which a server logs as much as it can.
var talkative = map[string]string{
	"log_statement": "all", "log_duration": "on", "log_min_duration_statement": "0",
	"log_parameter_max_length": "-1", "log_parameter_max_length_on_error": "-1",
	"log_error_verbosity": "verbose", "log_min_error_statement": "debug5",
	"log_lock_waits": "on", "deadlock_timeout": "10ms", "debug_print_plan": "on",
}

// holders are what holds a key that is not digested. Nothing else does at any time.
var holders = []string{"server's log", "write-ahead log", "tables", "files of the tables", "pgx's tracer", "fields of errors"}

// The test is not parallel: it searches all that the server writes meanwhile.
func TestDigestedKeyIsNowhere(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		if !query[bool](t, d, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") {
			t.Skip("only a superuser reads the files of a server")
		}
		name := query[string](t, d, "SELECT current_database()::text")
		for setting, value := range talkative {
			d.exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", name, setting, value))
		}
		wal := d.keepWAL(t)
		secret := "the-secret-of-" + rand.Text()
		digested, plain := "alice+"+rand.Text()+"&ö@example.org", "bob+"+rand.Text()+"&é@example.net"
		with, without := &keyleak.Transcript{}, &keyleak.Transcript{}
		for _, g := range []*leakProbe{
			{d, with, digested, []limiter.Option{limiter.WithKeyDigest([]byte(secret))}}, {d, without, plain, nil},
		} {
			g.calls(t)
			g.failures(t)
		}
		for _, h := range []*keyleak.Transcript{with, without} {
			h.Add("server's log", d.log(t, server))
			h.Add("write-ahead log", wal())
			d.stored(t, h)
		}

		testenv.Equal(t, with.Without([]string{digested, secret}, without, plain, holders, holders), nil, "what is wrong")
	})
}

// log returns the server's log with all that was said before.
func (d *database) log(t *testing.T, server *dbtest.Server) []byte {
	t.Helper()
	mark := "all is said " + rand.Text()
	d.exec(t, "DO $$BEGIN RAISE LOG '"+mark+"'; END$$")
	var text []byte
	waitFor(t, "the mark appears in the server's log", func() bool {
		text = server.Log(t)
		return bytes.Contains(text, []byte(mark))
	})
	return text
}

// keepWAL returns a function that reads what was written to the write-ahead log since
// then.
func (d *database) keepWAL(t *testing.T) (read func() []byte) {
	t.Helper()
	slot := "leak_" + strings.ToLower(rand.Text())
	query[string](t, d, "SELECT pg_create_physical_replication_slot($1, true)::text", slot)
	t.Cleanup(func() { must(t, testenv.ErrorOf(d.db.Exec("SELECT pg_drop_replication_slot($1)", slot))) })
	first := query[string](t, d, "SELECT pg_walfile_name(pg_current_wal_lsn())")
	return func() []byte {
		return d.files(t, `SELECT 'pg_wal/' || name FROM pg_ls_waldir()
			WHERE name BETWEEN $1 AND pg_walfile_name(pg_current_wal_lsn()) ORDER BY name`, first)
	}
}

// files reads the files that a query names.
func (d *database) files(t *testing.T, names string, args ...any) (all []byte) {
	t.Helper()
	rows, err := d.db.QueryContext(bounded(t), `SELECT pg_read_binary_file(name) FROM (`+names+`) AS files (name)`, args...)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var text []byte
		must(t, rows.Scan(&text))
		all = append(all, text...)
	}
	must(t, rows.Err())
	return all
}

// stored adds what the tables say, and what is in their files and those of their indexes.
func (d *database) stored(t *testing.T, h *keyleak.Transcript) {
	t.Helper()
	ours := `FROM pg_class WHERE relname ~ '^(` + strings.ReplaceAll(rowtest.SQL{}.Names(), ", ", "|") + `)'`
	dump := query[string](t, d, `SELECT string_agg(query_to_xml('SELECT * FROM ' || oid::regclass, true, true, '')::text, '') `+ours+` AND relkind = 'r'`)
	h.Add("tables", []byte(dump))
	d.exec(t, "CHECKPOINT")
	h.Add("files of the tables", d.files(t, `SELECT pg_relation_filepath(oid) `+ours))
}

// leakProbe does everything that can be done with a key, and records what programs say about it.
type leakProbe struct {
	*database
	seen *keyleak.Transcript
	key  string
	opts []limiter.Option
}

// limiter returns one whose observer listens.
func (g *leakProbe) limiter(t *testing.T, store limiter.Store, policy limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	observe := limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		g.seen.Add("observer", fmt.Appendf(nil, "%+v %#v", d, d))
		g.failed(d.Err)
	})
	return newLimiter(t, store, policy, append(append(opts, g.opts...), observe)...)
}

// pool returns a store on a pool of its own, whose tracer listens.
func (g *leakProbe) pool(t *testing.T, schema string, change func(*pgxpool.Config)) *postgres.Store {
	t.Helper()
	listen := tracelog.LoggerFunc(func(_ context.Context, level tracelog.LogLevel, msg string, data map[string]any) {
		g.seen.Add("pgx's tracer", fmt.Appendf(nil, "%v %s %v %+v", level, msg, data, data))
	})
	return g.store(t, schema, func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.Tracer = &tracelog.TraceLog{Logger: listen, LogLevel: tracelog.LogLevelTrace}
		if change != nil {
			change(c)
		}
	})
}

func (g *leakProbe) failed(err error) {
	g.seen.Add("errors", []byte(keyleak.Text(err)))
	g.seen.Add("fields of errors", []byte(keyleak.Fields(err)))
}

func (g *leakProbe) said(r limiter.Result, err error) {
	g.seen.Add("results", fmt.Appendf(nil, "%+v %#v", r, r))
	g.failed(err)
}

// calls carries out every operation, in all the ways that there are.
func (g *leakProbe) calls(t *testing.T) {
	t.Helper()
	schema, ctx := g.schema(t), bounded(t)
	store := g.pool(t, schema, nil)
	for _, policies := range [][2]limiter.Policy{{slow(3), slow(4)}, {long(3), long(4)}, {counting(3), counting(4)}} {
		for _, s := range []limiter.Store{store, postgres.RowLocked{Store: store}} {
			g.said(g.limiter(t, s, policies[0]).Allow(ctx, g.key))
		}
		l := g.limiter(t, store, policies[0], limiter.WithDenyCache(10, time.Minute))
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
		g.said(g.limiter(t, store, policies[1]).Allow(ctx, g.key)) // another policy: the store settles it
		all, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: l, Key: g.key}, limiter.Claim{Limiter: l, Key: "other"})
		g.said(all.Result, err)
		g.failed(l.Reset(ctx, g.key))
		g.said(l.Allow(ctx, g.key))
	}
	past := limiter.WithClock(func() time.Time { return time.Unix(1_000_000_000, 0) })
	g.said(g.limiter(t, store, limiter.PerSecond(1), past).Allow(ctx, g.key+" swept")) // and the cursor goes by it
	if n, err := store.Sweep(ctx, 10); n == 0 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}
}

// failures provokes an error of every kind.
func (g *leakProbe) failures(t *testing.T) {
	t.Helper()
	schema, checked := g.schema(t), g.schema(t)
	g.exec(t, "ALTER TABLE "+checked+".limiter_token_buckets ADD CONSTRAINT never CHECK (granted < 0)")
	lockTimeout := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "30ms" }
	noServer := func(c *pgxpool.Config) { c.ConnConfig.Port = 1 }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.said(g.limiter(t, g.pool(t, schema, nil), slow(9)).Allow(t.Context(), g.key))
	release := g.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
	defer release()
	for name, c := range map[string]struct {
		class error
		store *postgres.Store
		ctx   context.Context
		limit time.Duration
	}{
		"no tables":    {limiter.ErrMisconfigured, g.pool(t, "absent", nil), t.Context(), testTimeout},
		"constraint":   {limiter.ErrInvalid, g.pool(t, checked, nil), t.Context(), testTimeout},
		"lock timeout": {limiter.ErrNotApplied, g.pool(t, schema, lockTimeout), t.Context(), 3 * time.Second}, // its statement waits that long
		"time limit":   {limiter.ErrNotApplied, g.pool(t, schema, nil), t.Context(), 3 * time.Second},
		"canceled":     {limiter.ErrCanceled, g.pool(t, schema, nil), ended, testTimeout},
		"no server":    {limiter.ErrNotApplied, g.pool(t, schema, noServer), t.Context(), testTimeout},
	} {
		res, err := g.limiter(t, c.store, slow(9), limiter.WithTimeout(c.limit)).Allow(c.ctx, g.key)
		testenv.ErrorIs(t, err, c.class, name)
		g.said(res, err)
	}
	// A session is terminated while it waits for the row.
	g.blocked(t, 0)
	var wait sync.WaitGroup
	l := g.limiter(t, g.pool(t, schema, nil), slow(9))
	wait.Go(func() {
		res, err := l.Allow(bounded(t), g.key)
		testenv.ErrorIs(t, err, limiter.ErrOutcomeUnknown, "terminated")
		g.said(res, err)
	})
	g.blocked(t, 1)
	g.seen.Add("pg_stat_activity", []byte(query[string](t, g.database, "SELECT string_agg(a::text, '') FROM pg_stat_activity AS a")))
	g.terminateBlocked(t)
	wait.Wait()
}
