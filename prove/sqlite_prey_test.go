package prove_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/sqlite"
)

// A prey is a process that takes from a file, until it is killed. It prints an
// acknowledgment of each take before the same worker begins the next one: two bytes, the
// number of the worker and which of the answers it got. What a worker asks for follows
// from the seed and its number, so that it is known what each was about to be told when it
// ended.

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

const (
	preyFile = "LIMITER_PROVE_FILE"
	preySeed = "LIMITER_PROVE_SEED"
	// preyWorkers is how many takes a prey has under way at once.
	preyWorkers = 6
)

func init() { helpers["prey"] = beThePrey }

func workerOf(seed uint64, worker int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(worker))) }

func beThePrey() error {
	seed, err := strconv.ParseUint(os.Getenv(preySeed), 10, 64)
	if err != nil {
		return err
	}
	store, err := sqlite.Open(os.Getenv(preyFile))
	if err != nil {
		return err
	}
	limiters, err := sqliteLimiters(store, limiter.WithTimeout(patience))
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i := range preyWorkers {
		go func() { failed <- takeAndTell(context.Background(), i, workerOf(seed, i), limiters) }()
	}
	return <-failed
}

// takeAndTell takes and acknowledges for as long as somebody listens.
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

// prey is such a process, seen by who has started it.
type prey struct {
	cmd    *exec.Cmd
	stderr strings.Builder
	first  chan struct{} // closed when it has acknowledged something, or ended
	ended  sync.WaitGroup
	seed   uint64
	err    error
}

// note is called with what a process was told.
type note func(w want, r limiter.Result, err error)

// into enters what a process was told in a ledger.
func into(l *ledger.Ledger) note {
	return func(w want, r limiter.Result, err error) { l.Note(w.id(), w.capacity(), w.cost, r, err) }
}

// release starts a prey, whose acknowledgments are noted as they come.
func release(t testing.TB, path string, seed uint64, told note) *prey {
	t.Helper()
	p := &prey{
		cmd:  helper(t, "prey", preyFile+"="+path, fmt.Sprint(preySeed, "=", seed)),
		seed: seed, first: make(chan struct{}),
	}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.ended.Go(func() { p.err = p.listen(out, told) })
	return p
}

// listen reads to the end: what a process has written before it was killed is still there.
func (p *prey) listen(out io.Reader, told note) error {
	heard := sync.OnceFunc(func() { close(p.first) })
	defer heard()
	var workers [preyWorkers]*rand.Rand
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
		w := draw(workers[ack[0]])
		told(w, answers[ack[1]].result, answers[ack[1]].err)
	}
	for _, worker := range workers {
		told(draw(worker), limiter.Result{}, limiter.ErrOutcomeUnknown)
	}
	return nil
}

// kill kills the process, after a time from its first acknowledgment or, to meet it while
// it opens the file, from its start.
func (p *prey) kill(t testing.TB, after time.Duration, early bool) {
	t.Helper()
	if !early {
		<-p.first
	}
	<-time.After(after)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Errorf("it had ended by itself: %v", err)
	}
	p.ended.Wait()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if p.err != nil || !errors.As(err, &exit) || exit.Exited() {
		t.Errorf("a process ended by itself: %v, %v\n%s", p.err, err, &p.stderr)
	}
}
