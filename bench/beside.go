package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
	"github.com/sqlimit/limiter/postgres"
)

// The cases of what a hot key costs cold keys, in several processes that share a PostgreSQL. If all cores
// are busy, any caller slows the others down. So there are also as many callers of other cold keys.
const (
	alone     = iota // cold callers
	besideHot        // and others on one hot key
	besideOwn        // and others on cold keys of their own
	onlyHot          // the others without the cold ones
	onlyOwn
	besideCases
)

func (o options) task(number int) task {
	t := task{Warm: o.warm(), Length: o.length}
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

// besideRound is what all processes did in one round, by case.
type besideRound [besideCases]answer

type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// measureBeside lets processes do all cases in each round, in another order in each.
func measureBeside(ctx context.Context, b *backends) (sections []section, err error) {
	if !b.run.MatchString("beside") {
		return nil, nil
	}
	if err := b.start(ctx, onPostgres); err != nil {
		return nil, err
	}
	schema, err := b.pg.migrated(ctx, "beside")
	if err != nil {
		return nil, err
	}
	var workers []*process
	defer func() {
		for _, w := range workers {
			_ = w.in.Close() // it ends then; if it fails it has ended already
			err = errors.Join(err, w.Wait())
		}
	}()
	for range b.processes {
		w, err := startWorker(ctx, b.pg.dsn, schema)
		if err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if err := w.out.Decode(new(answer)); err != nil {
			return nil, fmt.Errorf("a worker: %w", err)
		}
	}
	rounds := make([]besideRound, b.rounds)
	for i := range rounds {
		for _, c := range rand.New(rand.NewPCG(uint64(i), besideCases)).Perm(besideCases) {
			b.progress("beside: round %d of %d, %s", i+1, b.rounds, b.besideTitle(c))
			if rounds[i][c], err = besideOne(workers, b.task(c)); err != nil {
				return nil, err
			}
		}
	}
	return []section{b.besideSection(rounds)}, nil
}

func startWorker(ctx context.Context, dsn, schema string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &process{Cmd: exec.CommandContext(ctx, self)}
	w.Env = append(os.Environ(), workerDSN+"="+dsn, workerSchema+"="+schema)
	w.Stderr = os.Stderr
	if w.in, err = w.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = json.NewDecoder(out)
	err = w.Start()
	return w, err
}

// besideOne has all workers do a task.
func besideOne(workers []*process, t task) (sum answer, err error) {
	for _, w := range workers {
		if err := json.NewEncoder(w.in).Encode(t); err != nil {
			return sum, err
		}
	}
	for _, w := range workers {
		var a answer
		if err := w.out.Decode(&a); err != nil {
			return sum, fmt.Errorf("a worker: %w", err)
		}
		if a.Err != "" {
			return sum, errors.New(a.Err)
		}
		sum.Cold += a.Cold
		sum.Others += a.Others
		sum.P99 = max(sum.P99, a.P99)
	}
	return sum, nil
}

func (o options) besideTitle(number int) string {
	return [besideCases]string{
		fmt.Sprintf("%d on cold keys", o.cold),
		fmt.Sprintf("%d on cold keys, %d on a hot one", o.cold, o.others),
		fmt.Sprintf("%d on cold keys, %d on others", o.cold, o.others),
		fmt.Sprintf("%d on a hot key", o.others),
		fmt.Sprintf("%d on other cold keys", o.others),
	}[number]
}

func (o options) besideSection(rounds []besideRound) section {
	s := section{
		title: "Callers of one hot key beside callers of cold keys",
		about: fmt.Sprintf("There are %d processes; all share the %d cold keys. Figures are medians of the rounds (lowest to highest). The ratio "+
			"compares with the first line in the same round. p99 is that of the slowest process.", o.processes, coldKeys),
		columns: []string{"callers in each process", "cold decisions/s", "ratio", "p99 of cold", "other decisions/s"},
		text:    1,
	}
	figure := func(format func(float64) string, of func(r *besideRound) float64) string {
		v := stats.SpreadBy(rounds, of)
		if math.IsNaN(v.Median) || v.High == 0 {
			return ""
		}
		return v.Text(format)
	}
	duration := func(v float64) string { return stats.Duration(time.Duration(v)) }
	for c := range besideCases {
		s.rows = append(s.rows, []string{
			o.besideTitle(c),
			figure(stats.Thousands, func(r *besideRound) float64 { return r[c].Cold }),
			figure(stats.TwoDigits, func(r *besideRound) float64 { return r[c].Cold / r[alone].Cold }),
			figure(duration, func(r *besideRound) float64 { return float64(r[c].P99) }),
			figure(stats.Thousands, func(r *besideRound) float64 { return r[c].Others }),
		})
	}
	hot := stats.SpreadBy(rounds, func(r *besideRound) float64 { return r[besideHot].Cold / r[besideOwn].Cold })
	s.after = fmt.Sprintf("Beside the hot key, cold keys get %s of the rate that they get beside as many callers of other cold keys.", hot.Text(stats.TwoDigits))
	return s
}

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

type task struct {
	Cold, Hot, Own int // callers on the cold keys, on the hot one, and on cold keys of their own
	Warm, Length   time.Duration
}

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
	a.P99 = stats.Quantile(measured[0].Latencies, 0.99)
	for _, err := range errs {
		if err != nil && !errors.Is(err, load.ErrNone) { // without a decision the rate is 0
			a.Err = err.Error()
		}
	}
	return a
}
