package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/postgres"
)

// What makes a process a worker of [measureBeside].
const (
	workerDSN    = "LIMITER_BESIDE_DSN"
	workerSchema = "LIMITER_BESIDE_SCHEMA"
)

const (
	coldKeys = 10_000
	// connections are those of the pool of a process.
	connections = 16
)

// task is what a worker is told to do.
type task struct {
	Cold, Hot, Own int // callers on the cold keys, on the hot one, and on cold keys of their own
	Warm, Length   time.Duration
}

// answer is what a worker measured of a task.
type answer struct {
	Cold, Others float64 // decisions a second
	P99          time.Duration
	Err          string
}

type worker struct {
	cold, own, hot *limiter.Limiter
	order          []int
}

// work asks for every cold key once, says so, and then does one task after another.
func work(ctx context.Context, schema, dsn string) error {
	pool, err := newPool(ctx, dsn, connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithSchema(schema))
	if err != nil {
		return err
	}
	w := worker{order: rand.Perm(coldKeys)}
	for name, l := range map[string]**limiter.Limiter{"cold": &w.cold, "own": &w.own, "hot": &w.hot} {
		if *l, err = newLimiter(store, name, plenty); err != nil {
			return err
		}
	}
	// So that rows are updated later and not inserted.
	err = load.Each(coldKeys, func(turn int) error { return errors.Join(w.ask(w.cold)(ctx, turn), w.ask(w.own)(ctx, turn)) })
	if err != nil {
		return err
	}
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	for {
		var t task
		if err := in.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := out.Encode(w.do(ctx, t)); err != nil {
			return err
		}
	}
}

// ask returns a function that asks l, for the one key of the hot limiter, or for one key after another.
func (w *worker) ask(l *limiter.Limiter) func(ctx context.Context, turn int) error {
	return func(ctx context.Context, turn int) error {
		if l == w.hot {
			return take(ctx, l, "hot")
		}
		return take(ctx, l, fmt.Sprint("key ", w.order[turn%coldKeys]))
	}
}

// do has all callers of a task ask at the same time.
func (w *worker) do(ctx context.Context, t task) (a answer) {
	callers := [3]int{t.Cold, t.Hot, t.Own}
	var measured [3]load.Measurement
	var errs [3]error
	var wait sync.WaitGroup
	for i, l := range [3]*limiter.Limiter{w.cold, w.hot, w.own} {
		if callers[i] > 0 {
			wait.Go(func() { measured[i], errs[i] = load.Load{Ask: w.ask(l)}.Run(ctx, callers[i], t.Warm, t.Length) })
		}
	}
	wait.Wait()
	a.Cold, a.Others = measured[0].Rate, measured[1].Rate+measured[2].Rate
	a.P99 = measured[0].Latencies.Quantile(0.99)
	if err := errors.Join(errs[:]...); err != nil {
		a.Err = err.Error()
	}
	return a
}
