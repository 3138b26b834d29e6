package postgres_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// tracer records the statements that pools send, of stores with or without WithAsyncCommit.
type tracer struct {
	mu    sync.Mutex
	sent  []string
	names map[string]string // by the text for schema public

	answered func()                 // if set, it is called after each batch
	fails    func(name string) bool // if set, it says whether a statement is not sent, because its context has ended
}

func newTracer(async bool) *tracer {
	r := &tracer{names: map[string]string{}}
	for name, text := range postgres.Statements("public", async) {
		r.names[text] = name
	}
	return r
}

var ownSchema = regexp.MustCompile(`"s\d+"\.`)

func (r *tracer) keep(sql string) (name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, ok := r.names[ownSchema.ReplaceAllString(sql, `"public".`)]
	if !ok {
		name = sql // begin, say
	}
	r.sent = append(r.sent, name)
	return name
}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if name := r.keep(q.SQL); r.fails != nil && r.fails(name) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	return ctx
}

func (r *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	for _, q := range b.Batch.QueuedQueries {
		r.keep(q.SQL)
	}
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {
	if r.answered != nil {
		r.answered()
	}
}

// take returns the statements that were sent since its last call.
func (r *tracer) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// in puts the tracer into a pool.
func (r *tracer) in(c *pgxpool.Config) { c.ConnConfig.Tracer = r }

// A take sends one statement. If the row has another policy, it also reads the row, and replaces it.
func TestTakeSends(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for take1, of := range map[string]func(int64) limiter.Policy{
			"bucketTake":  func(n int64) limiter.Policy { return slow(n) },
			"windowTake":  func(n int64) limiter.Policy { return long(n) },
			"windowCount": func(n int64) limiter.Policy { return counting(n) },
		} {
			schema := d.schema(t)
			r := newTracer(false)
			store, other := d.store(t, schema, r.in), d.store(t, schema, nil)
			ofKey := func(key string, cost int64) limiter.Op { return take(of(8), key, cost) }
			refund, later := ofKey("k", 8), ofKey("k", 1)
			refund.Kind, later.At = limiter.OpRefund, time.Now().UnixNano()
			read, swap := []string{take1, take1[:6] + "Read"}, []string{take1, take1[:6] + "Read", take1[:6] + "Swap"}
			for _, step := range []struct {
				name  string
				other []limiter.Op // another process's operations before the take
				op    limiter.Op
				took  bool
				sent  []string
			}{
				{"of a new key", nil, ofKey("k", 1), true, read[:1]},
				{"with much left", nil, ofKey("k", 6), true, read[:1]},
				{"after others took the rest", []limiter.Op{ofKey("k", 1)}, ofKey("k", 1), false, read[:1]},
				{"after a refusal", nil, ofKey("k", 1), false, read[:1]},
				{"after a refund", []limiter.Op{refund, refund}, ofKey("k", 8), true, read[:1]},
				{"at a time of its own", nil, later, false, read[:1]},
				{"from a row of another policy, too much", []limiter.Op{take(of(9), "other", 7)}, ofKey("other", 4), false, read},
				{"from it again", nil, ofKey("other", 4), false, read},
				{"from it, as much as is left", nil, ofKey("other", 1), true, swap},
			} {
				if take1 == "windowCount" && step.op.Key == "other" { // a refusal writes the policy
					continue
				}
				for _, op := range step.other {
					do(t, other, op)
				}
				step.op.Timeout = testTimeout
				testenv.Equal(t, do(t, store, step.op).Took, step.took, take1, step.name)
				testenv.Equal(t, r.take(), step.sent, take1, step.name, "sent")
			}
		}
	})
}

// asked notes the kind of each first message that is written to a server.
type asked struct {
	net.Conn
	mu    *sync.Mutex
	kinds map[byte]int
}

func (a asked) Write(b []byte) (int, error) {
	a.mu.Lock()
	a.kinds[b[0]]++
	a.mu.Unlock()
	return a.Conn.Write(b)
}

// In the simple protocol pgx takes a statement whose answer was lost for one that it never
// sent.
func TestNoSimpleProtocol(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		var mu sync.Mutex
		kinds := map[byte]int{}
		p := pool(t, d.dsn, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			wrap(c.ConnConfig, func(conn net.Conn) net.Conn { return asked{conn, &mu, kinds} })
		})
		store := storeOn(t, p, schema)
		conn, err := p.Acquire(bounded(t))
		must(t, err)
		defer conn.Release()
		for _, op := range all("k") {
			do(t, store, op)
			op.Timeout = testTimeout // by way of the queue, if it is a take
			do(t, store, op)
			do(t, storeOn(t, conn, schema), op)
		}
		refund := limiter.Op{Kind: limiter.OpRefund, Name: "test", Key: "k", Policy: slow(1), Cost: 1, Timeout: testTimeout}
		each(32, func(int) { do(t, store, refund) })
		testenv.Equal(t, store.Stats().Statements, store.Stats().Units, "statements, which no refunds share")
		count := func(kind byte) int {
			mu.Lock()
			defer mu.Unlock()
			return kinds[kind]
		}
		const simple, parse = 'Q', 'P'
		testenv.Equal(t, count(simple), 0, "statements in the simple protocol")
		testenv.Equal(t, count(parse) >= 3*len(all("k"))+32, true, "all went in the extended protocol:", count(parse))
		do(t, postgres.RowLocked{Store: store}, take(slow(2), "locked", 1))
		testenv.Equal(t, count(simple), 2, "statements in the simple protocol: BEGIN and COMMIT")
	})
}

// pgx fails each statement in a mode whose cache is turned off, and nothing is sent.
func TestWithoutAStatementCache(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		for name, change := range map[string]func(*pgx.ConnConfig){
			"cache_statement": func(c *pgx.ConnConfig) { c.StatementCacheCapacity = 0 },
			"cache_describe": func(c *pgx.ConnConfig) {
				c.DefaultQueryExecMode, c.DescriptionCacheCapacity = pgx.QueryExecModeCacheDescribe, 0
			},
		} {
			uncached := pool(t, d.dsn, func(c *pgxpool.Config) { change(c.ConnConfig) })
			_, err := postgres.New(uncached, postgres.WithQueryExecMode(uncached.Config().ConnConfig.DefaultQueryExecMode))
			wantError(t, err, limiter.ErrInvalid)
			store := storeOn(t, uncached, schema)
			for _, op := range all(name) {
				do(t, store, op)
			}
		}
	})
}

// A reader follows a lone take, which is granted on a warm pool, through few files and functions.
func TestPathOfATake(t *testing.T) {
	const mostFiles, mostFunctions = 25, 92
	dir := t.TempDir()
	program, profile := filepath.Join(dir, "path"), filepath.Join(dir, "profile")
	execute := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	execute("go", "build", "-cover", "-covermode=atomic", "-coverpkg=github.com/sqlimit/limiter/...", "-o", program, "./testdata/path")
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		execute(program, d.dsn, d.schema(t))
		execute("go", "tool", "covdata", "textfmt", "-i", dir, "-o", profile)
		files, functions := map[string]bool{}, []string{}
		executed := regexp.MustCompile(`(?m)^github\.com/sqlimit/limiter/(\S+\.go):\d+:\s+(\S+)\s+(\d+\.\d)%$`)
		for _, m := range executed.FindAllStringSubmatch(execute("go", "tool", "cover", "-func", profile), -1) {
			if m[3] != "0.0" && !strings.Contains(m[1], "testdata") {
				files[m[1]] = true
				functions = append(functions, m[1]+": "+m[2])
			}
		}
		t.Logf("%d files, %d functions:\n%s", len(files), len(functions), strings.Join(functions, "\n"))
		if len(files) == 0 || len(files) > mostFiles || len(functions) > mostFunctions {
			t.Errorf("want at most %d files and %d functions", mostFiles, mostFunctions)
		}
	})
}
