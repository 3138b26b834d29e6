package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/pg"
)

// The cases.
const (
	alone     = iota // cold callers
	besideHot        // and others on one hot key
	besideOwn        // and others on cold keys of their own
	onlyHot          // the others without the cold ones
	onlyOwn
	cases
)

// task returns what each process does in a case.
func (o options) task(number int) task {
	t := task{Warm: o.length / load.Warmth, Length: o.length}
	if number <= besideOwn {
		t.Cold = o.cold
	}
	switch number {
	case besideHot, onlyHot:
		t.Hot = o.others
	case besideOwn, onlyOwn:
		t.Own = o.others
	}
	return t
}

// sample is what all processes did in a case in one round.
type sample struct {
	cold, others float64 // decisions a second
	p99          time.Duration
	cores        float64 // that processes and server kept busy; NaN if that cannot be known
}

// results are the samples of each case, by round.
type results [cases][]sample

// meter has processes do the cases.
type meter struct {
	options
	database *pg.Database
	workers  []*process
}

// process is a worker.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// measure starts the workers and lets them do all cases in each round, in another order in each.
func (m *meter) measure(ctx context.Context, dsn, schema string) (r results, err error) {
	defer func() {
		for _, w := range m.workers {
			_ = w.in.Close() // it ends then; if it fails it has ended already
			err = errors.Join(err, w.Wait())
		}
	}()
	for range m.processes {
		if err := m.start(ctx, dsn, schema); err != nil {
			return r, err
		}
	}
	for _, w := range m.workers {
		var ready answer
		if err := w.out.Decode(&ready); err != nil {
			return r, fmt.Errorf("a worker: %w", err)
		}
	}
	for round := range m.rounds {
		for _, c := range rand.New(rand.NewPCG(uint64(round), cases)).Perm(cases) {
			fmt.Fprintf(os.Stderr, "round %d of %d, %s\n", round+1, m.rounds, m.title(c))
			s, err := m.one(ctx, m.task(c))
			if err != nil {
				return r, err
			}
			r[c] = append(r[c], s)
		}
	}
	return r, nil
}

func (m *meter) start(ctx context.Context, dsn, schema string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w := &process{Cmd: exec.CommandContext(ctx, self)}
	w.Env = append(os.Environ(), workerDSN+"="+dsn, workerSchema+"="+schema)
	w.Stderr = os.Stderr
	if w.in, err = w.StdinPipe(); err != nil {
		return err
	}
	out, err := w.StdoutPipe()
	if err != nil {
		return err
	}
	w.out = json.NewDecoder(out)
	if err := w.Start(); err != nil {
		return err
	}
	m.workers = append(m.workers, w)
	return nil
}

// one has all workers do a task. The CPU is that of about the time in which they count.
func (m *meter) one(ctx context.Context, t task) (s sample, err error) {
	for _, w := range m.workers {
		if err := json.NewEncoder(w.in).Encode(t); err != nil {
			return s, err
		}
	}
	select {
	case <-time.After(t.Warm):
	case <-ctx.Done():
		return s, ctx.Err()
	}
	before, began := m.busy(ctx), time.Now()
	select {
	case <-time.After(t.Length):
	case <-ctx.Done():
		return s, ctx.Err()
	}
	s.cores = (m.busy(ctx) - before) / time.Since(began).Seconds()
	for _, w := range m.workers {
		var a answer
		if err := w.out.Decode(&a); err != nil {
			return s, fmt.Errorf("a worker: %w", err)
		}
		if a.Err != "" {
			return s, errors.New(a.Err)
		}
		s.cold += a.Cold
		s.others += a.Others
		s.p99 = max(s.p99, a.P99)
	}
	return s, nil
}
