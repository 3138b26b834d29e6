package prove_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/sqlite"
)

// A taker is a process that takes from a SQLite file until it is killed. Before a worker begins its
// next take, it prints two bytes: its number and the number of the answer. The requests of a worker
// follow from the seed and its number. So the test knows the request that was in flight at the end.

var answers = []struct {
	result limiter.Result
	err    error
}{
	{limiter.Result{Allowed: true}, nil},
	{limiter.Result{}, nil},
	{limiter.Result{}, limiter.ErrMisconfigured},
	{limiter.Result{}, limiter.ErrOutcomeUnknown},
	{limiter.Result{}, limiter.ErrNotApplied},
}

// answerOf returns the number of an answer, -1 if it is none of them.
func answerOf(r limiter.Result, err error) int {
	for i, a := range answers {
		if a.result.Allowed == r.Allowed && (err == nil && a.err == nil || a.err != nil && errors.Is(err, a.err)) {
			return i
		}
	}
	return -1
}

// takerWorkers is how many takes a taker has under way at once.
const takerWorkers = 6

type takerJob struct {
	Path string
	Seed uint64
}

func init() { register("taker", takeUntilKilled) }

func workerOf(seed uint64, worker int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(worker))) }

func takeUntilKilled(job takerJob) error {
	store, err := sqlite.Open(job.Path)
	if err != nil {
		return err
	}
	limiters, err := newLasting(store, limiter.WithTimeout(waitLimit))
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i := range takerWorkers {
		go func() { failed <- takeAndTell(context.Background(), i, workerOf(job.Seed, i), limiters) }()
	}
	return <-failed
}

// takeAndTell takes and prints the answers until nobody reads them.
func takeAndTell(ctx context.Context, number int, r *rand.Rand, of []*limiter.Limiter) error {
	for {
		result, err := draw(r).ask(ctx, of)
		answer := answerOf(result, err)
		if answer < 0 {
			return err
		}
		if _, err := os.Stdout.Write([]byte{byte(number), byte(answer)}); err != nil {
			return err
		}
		if err != nil {
			wait(ctx, time.Millisecond)
		}
	}
}

// taker is such a process, from the side of the test.
type taker struct {
	*child
	first chan struct{} // closed when it has acknowledged something, or ended
	seed  uint64
}

type note func(q request, r limiter.Result, err error)

func into(l *ledger.Ledger) note {
	return func(q request, r limiter.Result, err error) { l.NoteAll(q.takes(), r, err) }
}

// startTaker starts a taker and notes its answers as they come.
func startTaker(t testing.TB, path string, seed uint64, told note) *taker {
	t.Helper()
	p := &taker{seed: seed, first: make(chan struct{})}
	p.child = startChild(t, helper(t, "taker", takerJob{path, seed}), func(out io.Reader) error { return p.listen(out, told) })
	return p
}

// listen reads to the end. What a process wrote before it was killed is still in the pipe.
func (p *taker) listen(out io.Reader, told note) error {
	heard := sync.OnceFunc(func() { close(p.first) })
	defer heard()
	var workers [takerWorkers]*rand.Rand
	for i := range workers {
		workers[i] = workerOf(p.seed, i)
	}
	for {
		var ack [2]byte
		if _, err := io.ReadFull(out, ack[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		heard()
		told(draw(workers[ack[0]]), answers[ack[1]].result, answers[ack[1]].err)
	}
	for _, worker := range workers {
		told(draw(worker), limiter.Result{}, limiter.ErrOutcomeUnknown)
	}
	return nil
}

// kill kills the process some time after its first answer. If early is set, the time counts from its
// start, so that the process may still be opening the file.
func (p *taker) kill(t testing.TB, after time.Duration, early bool) {
	t.Helper()
	if !early {
		<-p.first
	}
	<-time.After(after)
	p.child.kill(t)
}
