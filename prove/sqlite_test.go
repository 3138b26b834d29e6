package prove_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/sqlite"
)

// A taker is a process that takes from a SQLite file until it is killed. Before a worker begins its
// next take, it prints two bytes: its number and the number of the answer. The requests of a worker
// follow from the seed and its number. So the test knows the request that was in flight at the end.

// answers are the classes of its answers.
var answers = []string{outcome.Carried, outcome.Refused, outcome.Misconfigured, outcome.Unknown, outcome.NotApplied}

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
		answer := slices.Index(answers, outcome.Of(result.Allowed, err))
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

type note func(q request, class string)

func into(l *ledger.Ledger) note {
	return func(q request, class string) { l.Note(class, errors.New("an answer to a process"), q.takes()...) }
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
		told(draw(workers[ack[0]]), answers[ack[1]])
	}
	for _, worker := range workers {
		told(draw(worker), outcome.Unknown)
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

// newFile returns the path of a new database with its tables, which nobody has open.
func newFile(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "of its own") // so that it can be renamed
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "limiter.db")
	store := openFile(t, path)
	defer store.Close()
	must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
	return path
}

// openFile opens a store, to be closed by the caller.
func openFile(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(path)
	must(t, err)
	return store
}

// lookInto opens a database beside the stores that may have it open, and neither writes
// nor tidies up: a log that a killed process left is there for the next one to find.
func lookInto(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?mode=ro&_busy_timeout=10000")
	must(t, err)
	db.SetMaxOpenConns(1) // what it looked into first is what it looks into
	return db
}

// storedIn returns what is stored of each key, as of now: for ledger.Compare.
func storedIn(t testing.TB, db *sql.DB) map[ledger.ID]int64 {
	t.Helper()
	stored := map[ledger.ID]int64{}
	for _, table := range tables.All {
		rows, err := db.QueryContext(t.Context(), rowtest.SQL{SQLite: true}.Select(table))
		if err == nil {
			defer rows.Close()
			err = errors.Join(rowtest.Read(table, rows, func(name, key string, row limiter.Row) {
				stored[ledger.ID{Kind: table.Kind, Limiter: name, Key: key}] = rowtest.Used(table.Kind, row, time.Now().UnixNano())
			}), rows.Err())
		}
		must(t, err)
	}
	return stored
}

// intact sees to it that SQLite finds nothing wrong with a file.
func intact(t testing.TB, db *sql.DB) {
	t.Helper()
	var found string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&found); err != nil || found != "ok" {
		t.Errorf("the database is damaged: %s, %v", found, err)
	}
}
