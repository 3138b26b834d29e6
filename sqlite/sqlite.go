package sqlite

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/breaker"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/sweep"
)

// Store is a [limiter.Store] in the four tables of state, which package migrations creates. Make one
// with [Open] or [New]; the zero Store is not valid. A Store is safe for concurrent use.
type Store struct {
	path      string // of the file, or ":memory:"; empty if the pool is the caller's
	now       func() time.Time
	deadlines opcontext.Deadlines
	breaker   breaker.Breaker
	sweeper   sweep.Sweeper
	// writing is full while somebody writes. A caller that stops waiting for it is not charged. A
	// caller that stops waiting inside SQLite would not know whether the statement ran, and SQLite
	// polls, unfairly.
	writing chan struct{}
	// logChecked is when the log was last checked. Only the caller that may write uses it. copying is
	// whether a goroutine of copies copies the log, and pausing whether writers pause for it after each
	// transaction.
	logChecked       time.Time
	copying, pausing atomic.Bool
	copies           sync.WaitGroup

	// queue holds the operations that wait for the writer, and waiting is how many there are.
	queue    *batch.Queue
	waiting  atomic.Int64
	commits  atomic.Uint64 // how many transactions were committed
	counters batch.Counters

	mu      sync.Mutex
	closed  bool
	closing sync.Once
	file    *watchedFile // nil before the first use, and if there is none
	db      *sql.DB      // what DB returns, nil before the first use
	reader  pool         // nil before the first use
	writer  pool         // the same as reader if there is one pool for all
}

// Open returns a Store on the file at path. Open does no I/O. The first use creates the file if it
// does not exist. Call [Store.Close] at the end.
//
// The path is not a DSN: all its characters are part of the name. A relative path is resolved at
// the first use. The path ":memory:" is a database of this Store alone, which is lost when the
// Store is closed. The error matches [limiter.ErrInvalid] if the path is empty or a URI.
//
// The Store switches the database to WAL permanently. The directory must be writable, because the
// -wal and -shm files beside the file belong to the database. To choose the settings of the database,
// open it yourself and pass it to [New].
func Open(path string) (*Store, error) {
	switch {
	case path == "":
		return nil, invalid(`the path is empty; pass the path of a file, or ":memory:"`)
	case strings.HasPrefix(path, "file:") || strings.HasPrefix(path, "sqlite:"):
		return nil, invalid("the path starts with file: or sqlite:, but Open takes no URI; pass the path alone, or open the database with your own parameters and pass it to New")
	case strings.ContainsRune(path, 0):
		return nil, invalid("the path has a zero byte, which no file name can have")
	}
	return newStore(&Store{path: path}), nil
}

// New returns a Store on db, a pool of SQLite connections by any driver. It does no I/O, changes no
// setting of db and never closes it. An in-memory database needs db.SetMaxOpenConns(1), because
// each connection would have a database of its own. The error matches [limiter.ErrInvalid].
//
// The database should be in WAL mode, where refusals do not wait for writers. The busy timeout
// should be short or 0, because not every driver ends a wait inside SQLite when the context ends.
// The Store itself waits for locks until the operation's time limit or the context ends. Sweep and
// Check wait up to 5 s.
func New(db *sql.DB) (*Store, error) {
	if db == nil {
		return nil, invalid("the *sql.DB is nil; pass what sql.Open returned, or use Open")
	}
	p := &sqlPool{db: db}
	return newStore(&Store{db: db, reader: p, writer: p}), nil
}

func newStore(s *Store) *Store {
	s.now, s.writing, s.queue = time.Now, make(chan struct{}, 1), s.newQueue()
	s.breaker.IsOutage = isOutage
	return s
}

// Stats returns what the Store has done since it was made. It does no I/O and waits for none.
func (s *Store) Stats() limiter.StoreStats {
	stats := s.counters.Stats()
	stats.BreakerOpen, stats.BreakerOpenings = s.breaker.Stats()
	return stats
}

// Close closes what [Open] opened. The pool that was passed to [New] stays open. Operations in
// flight finish, as does a copy of the log, and later ones fail. Further calls do nothing. Close waits for
// operations in flight, so end transactions of yours on [Store.DB] before.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.copies.Wait() // without s.mu, for which a writer may wait that copyLog waits for
		err = s.closePools()
	})
	return err
}

func invalid(problem string) error {
	return fmt.Errorf("sqlite: %w: %s", limiter.ErrInvalid, problem)
}
