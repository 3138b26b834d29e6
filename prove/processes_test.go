package prove_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/workload"
	"github.com/sqlimit/limiter/sqlite"
)

func init() { register("worker", work) }

type worker struct {
	DSN  string // of a PostgreSQL database, or
	Path string // of a SQLite file
	workload.Options
}

const (
	connections = 8               // how many a worker has to its database
	roundTime   = 2 * time.Minute // how long the calls of a round may take at most
)

func work(w worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), roundTime)
	defer cancel()
	store, stop, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := testenv.AwaitStart(); err != nil {
		return err
	}
	var report recorded
	report.Calls, report.Denied, err = workload.Run(ctx, store, w.Options)
	policies := kinds.Policies()
	for i := range report.Calls {
		policy := &report.Calls[i].Op.Policy
		report.Policies = append(report.Policies, slices.Index(policies, *policy))
		*policy = nil
	}
	out := bufio.NewWriter(os.Stdout)
	return errors.Join(err, gob.NewEncoder(out).Encode(report), out.Flush())
}

// recorded is the calls of a worker. gob cannot send all policies, so Policies has their places in those of kinds.
type recorded struct {
	Calls    []history.Call
	Policies []int
	Denied   int64
}

func (w *worker) open(ctx context.Context) (store limiter.Store, stop func(), err error) {
	if w.Path != "" {
		s, err := sqlite.Open(w.Path)
		if err != nil {
			return nil, nil, err
		}
		return s, func() { _ = s.Close() }, nil // the process ends
	}
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.New(pool)
	if err != nil {
		return nil, nil, err
	}
	return s, pool.Close, pool.Ping(ctx)
}

type running struct {
	processes []*os.Process
	ended     <-chan struct{} // closed when all of them are
	reports   []recorded
}

// startWorkers starts workers, and has all of them begin at once.
func startWorkers(t *testing.T, workers ...worker) *running {
	run := &running{reports: make([]recorded, len(workers))}
	var helpers []*exec.Cmd
	for _, w := range workers {
		helpers = append(helpers, helper(t, "worker", w))
	}
	run.ended = testenv.StartTogether(t, helpers, func(i int, out io.Reader) error {
		return gob.NewDecoder(out).Decode(&run.reports[i])
	})
	for _, cmd := range helpers {
		run.processes = append(run.processes, cmd.Process)
	}
	return run
}

// calls waits until all workers have ended, and returns what they recorded.
func (run *running) calls(t *testing.T, r *campaign.Round) (all []history.Call) {
	t.Helper()
	<-run.ended
	if t.Failed() {
		t.FailNow()
	}
	policies := kinds.Policies()
	for _, report := range run.reports {
		for i, n := range report.Policies {
			report.Calls[i].Op.Policy = policies[n]
		}
		all = append(all, report.Calls...)
		r.Count("operations refused from memory", report.Denied)
	}
	return all
}

// child is a process that works until it is killed.
type child struct {
	cmd    *exec.Cmd
	stderr strings.Builder
	ended  chan struct{} // closed when all of its output was read
	err    error         // of its output
}

// startReporting starts a helper. note hears what it reports, also what it reported before it was killed.
func startReporting[Event any](t testing.TB, name string, job any, note func(Event)) *child {
	t.Helper()
	p := &child{cmd: helper(t, name, job), ended: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		for in := json.NewDecoder(out); p.err == nil; {
			var e Event
			if p.err = in.Decode(&e); p.err == nil {
				note(e)
			}
		}
		if errors.Is(p.err, io.EOF) {
			p.err = nil
		}
	}()
	return p
}

// reporter returns the function by which such a helper reports an event.
func reporter[Event any]() (note func(Event)) {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(e); err != nil { // the test has ended
			os.Exit(1)
		}
	}
}

// kill kills the process, and waits until all of its output was read.
func (p *child) kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Errorf("it had ended by itself: %v", err)
	}
	<-p.ended
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if p.err != nil || !errors.As(err, &exit) || exit.Exited() {
		t.Errorf("a process ended by itself: %v, %v\n%s", p.err, err, &p.stderr)
	}
}
