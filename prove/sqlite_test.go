package prove_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/sqlite"
)

// A taker is a process that takes from a SQLite file until it is killed. A worker reports each answer before
// it begins its next take. The requests of a worker follow from the seed and its number. So the test knows the
// request that was in flight at the end.

// takerWorkers is how many takes a taker has under way at once.
const takerWorkers = 6

type takerJob struct {
	Path string
	Seed uint64
}

// answer is what a worker of a taker was told.
type answer struct {
	Worker       int
	Class, Error string
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
	ctx, report := context.Background(), reporter[answer]()
	for i := range takerWorkers {
		go func() {
			for r := workerOf(job.Seed, i); ; {
				result, err := draw(r).ask(ctx, limiters)
				report(answer{i, outcome.Of(result.Allowed, err), fmt.Sprint(err)})
				if err != nil {
					wait(ctx, time.Millisecond)
				}
			}
		}()
	}
	select {}
}

// taker is such a process, from the side of the test.
type taker struct {
	*child
	first   chan struct{} // closed when it has acknowledged something
	workers [takerWorkers]*rand.Rand
	told    note
}

type note func(q request, a answer)

func into(l *ledger.Ledger) note {
	return func(q request, a answer) { l.Note(a.Class, errors.New(a.Error), q.takes()...) }
}

// startTaker starts a taker and notes its answers as they come.
func startTaker(t testing.TB, path string, seed uint64, told note) *taker {
	t.Helper()
	p := &taker{first: make(chan struct{}), told: told}
	for i := range p.workers {
		p.workers[i] = workerOf(seed, i)
	}
	heard := sync.OnceFunc(func() { close(p.first) })
	p.child = startReporting(t, "taker", takerJob{path, seed}, func(a answer) {
		heard()
		told(draw(p.workers[a.Worker]), a)
	})
	return p
}

// await waits until the process has acknowledged something, or ended.
func (p *taker) await() {
	select {
	case <-p.first:
	case <-p.ended:
	}
}

// kill kills the process some time after its first answer or, if early is set, after its start.
func (p *taker) kill(t testing.TB, after time.Duration, early bool) {
	t.Helper()
	if !early {
		p.await()
	}
	<-time.After(after)
	p.child.kill(t)
	for _, worker := range p.workers {
		p.told(draw(worker), answer{Class: outcome.Unknown})
	}
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

// lookInto opens a database beside stores. It neither writes nor tidies up: the next process must find the log.
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

// judgeFile compares a file with what was told, and checks that SQLite finds nothing wrong with it.
func judgeFile(t testing.TB, r *campaign.Round, path string, told *ledger.Ledger) {
	t.Helper()
	db := lookInto(t, path)
	defer db.Close()
	v := told.Compare(storedIn(t, db))
	r.None(campaign.LostTakes, v.Lost)
	judgeKept(t, r, told, v)
	var found string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&found); err != nil || found != "ok" {
		t.Errorf("the database is damaged: %s, %v", found, err)
	}
}
