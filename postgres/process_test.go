package postgres_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// What makes a process of this test binary a worker of [TestTakesOfTwoProcessesAreThoseOfASequentialRun].
const (
	workerDSN    = "LIMITER_TEST_WORKER_DSN"
	workerSchema = "LIMITER_TEST_WORKER_SCHEMA"
	workerNumber = "LIMITER_TEST_WORKER_NUMBER"
)

// A worker neither runs tests nor starts servers.
func init() {
	if os.Getenv(workerDSN) == "" {
		return
	}
	if err := work(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work says that it is ready, takes when it is told to, and reports what it was told.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*testTimeout)
	defer cancel()
	config, err := pgxpool.ParseConfig(os.Getenv(workerDSN))
	if err != nil {
		return err
	}
	sent := new(counter)
	config.MaxConns, config.ConnConfig.Tracer = 8, sent
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithSchema(os.Getenv(workerSchema)))
	if err != nil {
		return err
	}
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // closed when all are ready
		return err
	}
	sent.Store(0)
	records, err := callers(ctx, store, os.Getenv(workerNumber))
	return errors.Join(err, gob.NewEncoder(out).Encode(report{records, sent.Load()}))
}

// report is what a worker was told, and how many statements it sent for that.
type report struct {
	Records    []record
	Statements int64
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

// counter counts the statements of a pool.
type counter struct{ atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

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

// processes runs workers on a schema, all at once, and returns their reports.
func processes(t *testing.T, d *database, schema string, n int) []report {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reports := make([]report, n)
	var ready, ended sync.WaitGroup
	ready.Add(n)
	for i := range reports {
		worker := exec.CommandContext(bounded(t), self)
		worker.Env = append(os.Environ(), workerDSN+"="+d.dsn, workerSchema+"="+schema, fmt.Sprint(workerNumber, "=", i))
		stderr := new(strings.Builder)
		worker.Stderr = stderr
		in, err := worker.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		pipe, err := worker.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		ended.Go(func() {
			out := bufio.NewReader(pipe)
			_, err := out.ReadString('\n')
			ready.Done()
			ready.Wait()
			_ = in.Close() // of one that has ended it fails
			if err == nil {
				err = gob.NewDecoder(out).Decode(&reports[i])
			}
			if err := errors.Join(err, worker.Wait()); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, stderr)
			}
		})
	}
	ended.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return reports
}
