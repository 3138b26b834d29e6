package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// workerVariable makes a process of this test binary a worker. It is a [worker] as JSON.
const workerVariable = "LIMITER_TEST_WORKER"

// worker is what a process has to do.
type worker struct {
	Job         string // of jobs
	DSN, Schema string
	Conns       int32
	Citus       bool
	Number      int
	Seed        uint64
}

// report is what a worker was told, and what it sent for that.
type report struct {
	Records    []record
	Ledger     *ledger
	Statements int64
	Deadlocks  int64
}

// jobs are what workers can do.
var jobs = map[string]func(context.Context, *postgres.Store, *worker, *report) error{
	"callers":   callers,
	"decisions": decisions,
}

// A worker neither runs tests nor starts servers.
func init() {
	if os.Getenv(workerVariable) == "" {
		return
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work says that it is ready, does its job when it is told to, and reports what it was told.
func work(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*testTimeout)
	defer cancel()
	var w worker
	if err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &w); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return err
	}
	sent := new(counter)
	config.MaxConns, config.ConnConfig.Tracer = w.Conns, sent
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	opts := []postgres.Option{postgres.WithSchema(w.Schema)}
	if w.Citus {
		opts = append(opts, postgres.WithCitus())
	}
	store, err := postgres.New(pool, opts...)
	if err != nil {
		return err
	}
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	if err := testenv.AwaitStart(); err != nil {
		return err
	}
	sent.Store(0)
	var r report
	err = jobs[w.Job](ctx, store, &w, &r)
	r.Statements, r.Deadlocks = sent.Load(), sent.deadlocks.Load()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(r))
}

// record is an operation on a key of a limiter of the mixture, and its answer.
type record struct {
	Limiter      int
	Key          string
	Kind         limiter.OpKind
	Cost         int64
	State        limiter.State
	Began, Ended int64
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

// scribe carries out operations and remembers them. Its clock goes on evenly, and is
// that of all processes: what it reads at first is the host's.
type scribe struct {
	store limiter.Store
	start time.Time

	mu      sync.Mutex
	records []record
}

func newScribe(store limiter.Store) *scribe { return &scribe{store: store, start: time.Now()} }

func (r *scribe) clock() int64 { return r.start.UnixNano() + int64(time.Since(r.start)) }

func (r *scribe) do(ctx context.Context, kind limiter.OpKind, n int, key string, cost int64) (limiter.State, error) {
	c := record{Limiter: n, Key: key, Kind: kind, Cost: cost, Began: r.clock()}
	var err error
	if c.State, err = r.store.Do(ctx, c.op()); err != nil {
		return c.State, err
	}
	c.Ended = r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, c)
	return c.State, nil
}

// op is the operation that was recorded. It has a time limit, as all of a Limiter have:
// without one it would not go out together with others.
func (c record) op() limiter.Op {
	m := mixture[c.Limiter]
	return limiter.Op{Kind: c.Kind, Name: m.name, Key: c.Key, Policy: m.policy, Cost: c.Cost, Timeout: testTimeout}
}

// processes runs n workers like w, all at once, and returns their reports.
func processes(t *testing.T, w worker, n int) []report {
	t.Helper()
	reports := make([]report, n)
	var workers []*exec.Cmd
	for i := range n {
		w.Number = i
		job, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, testenv.Self(t, workerVariable+"="+string(job)))
	}
	<-testenv.StartTogether(t, workers, func(i int, out io.Reader) error {
		return json.NewDecoder(out).Decode(&reports[i])
	})
	if t.Failed() {
		t.FailNow()
	}
	return reports
}
