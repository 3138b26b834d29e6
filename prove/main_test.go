package prove_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	testenv.Equal(t, p.cmd.Process.Kill(), nil, "the process had ended by itself")
	<-p.ended
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if p.err != nil || !errors.As(err, &exit) || exit.Exited() {
		t.Errorf("a process ended by itself: %v, %v\n%s", p.err, err, &p.stderr)
	}
}

var must = testenv.Must

var (
	tier      = flag.String("tier", "ci", "how much is done: ci (10 minutes), nightly (2 hours) or release (6 hours)")
	seed      = flag.Uint64("seed", 0, "what all randomness comes from; 0 chooses one")
	report    = flag.String("report", "report-TIER.json", "the file that the report is written to, as JSON, after each round")
	round     = flag.Int("round", 0, "the number of the only round to be run")
	fraction  = flag.Float64("fraction", 0, "the part of the tier's rounds to be run, above 0 to 1; 0 is all")
	perCaller = flag.Int("calls", 150, "how many calls each caller makes in a round of a history")
)

// proof is the campaign of this run.
var proof *campaign.Campaign

// helpers are what scenarios start this program as, by the word in helperVariable. They run no tests.
var helpers = map[string]func() error{}

const (
	helperVariable = "LIMITER_PROVE_HELPER"
	jobVariable    = "LIMITER_PROVE_JOB" // what a helper has to do, as JSON
)

func register[Job any](name string, run func(job Job) error) {
	helpers[name] = func() error {
		var job Job
		if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &job); err != nil {
			return err
		}
		return run(job)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		if err := helpers[name](); err != nil {
			fmt.Fprintln(os.Stderr, "prove:", name+":", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := errors.Join(testenv.CheckRequired(), begin()); err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(2)
	}
	code := m.Run()
	text, err := proof.End()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		code = max(code, 1)
	}
	if code == 0 { // after a failure, the failure is what there is to read
		fmt.Println(text)
	}
	os.Exit(code)
}

// helper returns the command that is this program as a helper.
func helper(t testing.TB, name string, job any) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(job)
	must(t, err)
	return testenv.Self(t, helperVariable+"="+name, jobVariable+"="+string(text))
}

func begin() (err error) {
	proof, err = campaign.New(campaign.Options{
		Tier: campaign.Tier(*tier), Seed: *seed, Report: strings.Replace(*report, "TIER", *tier, 1), Round: *round, Fraction: *fraction,
		Versions: versions(),
	})
	return err
}

// versions tells what is tested, and with what.
func versions() map[string]string {
	programs, _, _ := testenv.PostgreSQL(context.Background()) // a scenario says why there is none
	v := map[string]string{
		"go": runtime.Version(), "limiter": output("git", "describe", "--always", "--dirty"),
		"postgres": output(filepath.Join(programs, "postgres"), "--version"), "pgbouncer": strings.Split(output("/usr/sbin/pgbouncer", "--version"), "\n")[0],
		"system": runtime.GOOS + "/" + runtime.GOARCH + ", " + fmt.Sprint(runtime.NumCPU()) + " cores",
	}
	for _, module := range strings.Split(output("go", "list", "-m", "github.com/jackc/pgx/v5", "modernc.org/sqlite"), "\n") {
		name, version, _ := strings.Cut(module, " ")
		v[name] = version
	}
	return v
}

// output is what a program prints, or why it does not.
func output(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}
