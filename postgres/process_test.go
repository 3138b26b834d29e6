package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// workerVariable makes a process of this test binary a worker. It is a [worker] as JSON.
const workerVariable = "LIMITER_TEST_WORKER"

// worker is what a process has to do.
type worker struct {
	DSN, Schema string
	Citus       bool
	Number      int
	Seed        uint64
}

// report is what a worker did.
type report struct {
	Ledger    *ledger
	Deadlocks int64 // statements that failed as deadlock victims
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

// work waits until all workers are ready, makes its decisions, and prints a report.
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
	config.MaxConns, config.ConnConfig.Tracer = 12, sent
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
	l, err := decisions(ctx, store, &w)
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(report{l, sent.deadlocks.Load()}))
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
