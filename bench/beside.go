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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/bench/internal/load"
	"github.com/sqlimit/limiter/bench/internal/stats"
	"github.com/sqlimit/limiter/postgres"
)

const (
	processes = 3
	// besideCold and besideOthers are the callers of a process.
	besideCold, besideOthers = 64, 16
	coldKeys                 = 10_000
	// connections are those of the pool of a process.
	connections = 16
)

// The cases of what a hot key costs cold keys, in several processes that share a PostgreSQL. If all cores
// are busy, any caller slows the others down. So there are also as many callers of other cold keys.
const (
	alone     = iota // cold callers
	besideHot        // and others on one hot key
	besideOwn        // and others on cold keys of their own
)

var besideCases = [...]struct {
	about string
	task  task
}{
	alone:     {fmt.Sprintf("%d on cold keys", besideCold), task{Cold: besideCold}},
	besideHot: {fmt.Sprintf("%d on cold keys, %d on a hot one", besideCold, besideOthers), task{Cold: besideCold, Hot: besideOthers}},
	besideOwn: {fmt.Sprintf("%d on cold keys, %d on others", besideCold, besideOthers), task{Cold: besideCold, Own: besideOthers}},
	{fmt.Sprintf("%d on a hot key", besideOthers), task{Hot: besideOthers}},
	{fmt.Sprintf("%d on other cold keys", besideOthers), task{Own: besideOthers}},
}

// besideRound is what all processes did in one round, by case.
type besideRound [len(besideCases)]answer

type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// measureBeside lets processes do all cases in each round, in another order in each.
func measureBeside(ctx context.Context, b *backends) (sections []section, err error) {
	defer catch(&err)
	if !b.run.MatchString("beside") {
		return nil, nil
	}
	b.start(ctx, onPostgres)
	schema := b.pg.migrated(ctx, "beside")
	var workers [processes]*process
	for i := range workers {
		workers[i] = b.startWorker(ctx, schema)
	}
	for _, w := range workers {
		w.answer()
	}
	rounds := make([]besideRound, b.rounds)
	for i := range rounds {
		for _, n := range rand.New(rand.NewPCG(uint64(i), uint64(len(besideCases)))).Perm(len(besideCases)) {
			b.progress("beside: round %d of %d, %s", i+1, b.rounds, besideCases[n].about)
			t := besideCases[n].task
			t.Warm, t.Length = b.warm(), b.length
			for _, w := range workers {
				must(json.NewEncoder(w.in).Encode(t))
			}
			sum := &rounds[i][n]
			for _, w := range workers {
				a := w.answer()
				sum.Cold += a.Cold
				sum.Others += a.Others
				sum.P99 = max(sum.P99, a.P99)
			}
		}
	}
	return []section{besideSection(rounds)}, nil
}

func (b *backends) startWorker(ctx context.Context, schema string) *process {
	w := &process{Cmd: exec.CommandContext(ctx, try(os.Executable()))}
	w.Env = append(os.Environ(), workerDSN+"="+b.pg.dsn, workerSchema+"="+schema)
	w.Stderr = os.Stderr
	w.in = try(w.StdinPipe())
	w.out = json.NewDecoder(try(w.StdoutPipe()))
	must(w.Start())
	b.atClose(func() error {
		_ = w.in.Close() // it ends then; if it fails it has ended already
		return w.Wait()
	})
	return w
}

func (w *process) answer() (a answer) {
	if err := w.out.Decode(&a); err != nil {
		must(fmt.Errorf("a worker ended: %w", err))
	}
	return a
}

func besideSection(rounds []besideRound) section {
	s := section{
		title: "Callers of one hot key beside callers of cold keys",
		about: fmt.Sprintf("There are %d processes; all share the %d cold keys. Figures are medians of the rounds (lowest to highest). The ratio "+
			"compares with the first line in the same round. p99 is that of the slowest process.", processes, coldKeys),
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
	for n, c := range besideCases {
		s.row(c.about,
			figure(stats.Thousands, func(r *besideRound) float64 { return r[n].Cold }),
			figure(stats.TwoDigits, func(r *besideRound) float64 { return r[n].Cold / r[alone].Cold }),
			figure(duration, func(r *besideRound) float64 { return float64(r[n].P99) }),
			figure(stats.Thousands, func(r *besideRound) float64 { return r[n].Others }))
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

type task struct {
	Cold, Hot, Own int // callers on the cold keys, on the hot one, and on cold keys of their own
	Warm, Length   time.Duration
}

type answer struct {
	Cold, Others float64 // decisions a second
	P99          time.Duration
}

type worker struct {
	cold, own, hot *limiter.Limiter
	order          []int
}

// work asks for every cold key once, says so, and then does one task after another.
func work(ctx context.Context, schema, dsn string) {
	pool := newPool(ctx, dsn, connections)
	defer pool.Close()
	store := try(postgres.New(pool, postgres.WithSchema(schema)))
	w := worker{newLimiter(store, "cold", plenty), newLimiter(store, "own", plenty), newLimiter(store, "hot", plenty), rand.Perm(coldKeys)}
	// So that rows are updated later and not inserted.
	must(load.Each(coldKeys, func(turn int) error { return errors.Join(w.ask(w.cold)(ctx, turn), w.ask(w.own)(ctx, turn)) }))
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	must(out.Encode(answer{}))
	for in.More() {
		var t task
		must(in.Decode(&t))
		must(out.Encode(w.do(ctx, t)))
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
func (w *worker) do(ctx context.Context, t task) answer {
	callers := [3]int{t.Cold, t.Hot, t.Own}
	var measured [3]load.Measurement
	var all errgroup.Group
	for i, l := range [3]*limiter.Limiter{w.cold, w.hot, w.own} {
		all.Go(func() (err error) {
			measured[i], err = load.Load{Ask: w.ask(l)}.Run(ctx, callers[i], t.Warm, t.Length)
			if errors.Is(err, load.ErrNone) { // without a decision the rate is 0
				return nil
			}
			return err
		})
	}
	must(all.Wait())
	return answer{measured[0].Rate, measured[1].Rate + measured[2].Rate, stats.Quantile(measured[0].Latencies, 0.99)}
}
