// Package sqlite is a [limiter.Store] in a SQLite database: for one host with any number of
// processes, for tests against real SQL, and for programs that have a SQLite file anyway. It needs
// neither cgo nor a server.
//
//	store, err := sqlite.Open("app.db")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	// Once, when the program is deployed:
//	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
//		return err
//	}
//	logins, err := limiter.New(store, "login", limiter.PerMinute(5))
//
// # One file is one host
//
// A SQLite file limits the processes that open it. On AWS Lambda, where only /tmp can be written, and
// on Cloud Run each instance has a file of its own, and so its own limits: ten instances admit ten
// times as much. On network filesystems (EFS, NFS, GCS FUSE) the locks and the shared memory that
// SQLite relies on do not work; put no database there. Use the PostgreSQL store for more than one host.
//
// Nor must a file be removed or replaced while a process has it open: SQLite goes on in the old one,
// which vanishes with the process. A Store that [Open] made looks for its file, and for the companions
// -wal and -shm, each 100 ms of use. If one of them is not where it was, its operations fail with
// [limiter.ErrMisconfigured], until the very same files are back, or the Store is closed and another
// opened. It never makes a file anew, nor goes over to another, whose log the -wal of the old file would
// pass for. With [New] both are for the owner of the pool to see to.
//
// # Decisions
//
// A take reads the key's row first. If that refuses, the answer is given, and nothing was locked or
// written: a flood of refused requests is a flood of reads, which run beside each other and beside
// the one writer that SQLite allows. Otherwise a transaction reads the row, decides and writes.
// Operations of one Store that arrive while others are in flight wait, and share the next
// transaction. They admit what they would admit one after another. The transactions of one Store take
// turns; between Stores and processes SQLite's write lock decides.
//
// A caller whose context or time limit ends while it waits is not charged. If it ends while a
// transaction that others share is in flight, the outcome is unknown: [limiter.ErrOutcomeUnknown].
//
// The clock is the process's, read by Go, in nanoseconds: all processes on one host have the same.
//
// # Durability
//
// A decision that was answered survives the end of the process, also by a signal. With [Open] the
// database does not wait for the disk at each take (WAL, synchronous=NORMAL): a power loss or a crash
// of the operating system may forget the latest takes, never damage the file. With [New] that is the
// caller's choice.
//
// # A full disk
//
// On a full disk the keys that have a row are decided as usual, and new keys are refused with
// [limiter.ErrNotApplied]. For that, a Store that [Open] made enlarges the file before it needs the
// pages, by an eighth, 256 kB at least and 2 MB at most. It cannot help if others enlarge the database,
// with tables of their own, while the disk fills up, or on a filesystem that never overwrites in place
// (Btrfs, ZFS). A Store that [New] made copies the log to the file when the disk is full, and tries once
// more: that helps until a new key has needed a page.
package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// Store keeps state in the tables limiter_token_buckets and limiter_fixed_windows. It creates no
// tables: see package migrations. Make one with [Open] or [New]; the zero Store is not valid. A Store
// is safe for concurrent use.
type Store struct {
	path    string // of the file, or ":memory:"; empty if the pool is the caller's
	now     func() time.Time
	time    sqlstore.Timekeeper
	breaker sqlstore.Breaker
	sweeper sqlstore.Sweeper
	// turn is held by the one writer. To wait for it costs a caller that goes nothing, while to wait
	// inside SQLite would leave it in doubt whether the statement ran; and SQLite polls, unfairly.
	turn chan struct{}

	// queue holds the operations that wait for the writer, and waiting is how many there are.
	queue   *batch.Queue
	waiting atomic.Int64

	mu     sync.Mutex
	closed bool
	place  *place  // of the file; nil before the first use, and if there is none
	db     *sql.DB // what DB returns, nil before the first use
	reader pool    // nil before the first use
	writer pool    // the same as reader if there is one pool for all
}

// Option changes how a [Store] works. There is none yet: what a program may want to choose, it
// chooses with a pool of its own and [New].
type Option func(*Store) error

// Open returns a Store on the file at path, which is created at the first use if it is not there, and
// never again.
// Open itself does no I/O. The path ":memory:" is a database of this Store alone, which is lost when
// it is closed. A relative path is taken from the working directory at the first use. The path is not
// a DSN: whatever characters it has are part of the name. An empty path and a URI are
// [limiter.ErrInvalid].
//
// The database is switched to WAL, and stays so. The file and its companions with the suffixes -wal
// and -shm belong together, and the directory must be writable.
func Open(path string, opts ...Option) (*Store, error) {
	switch {
	case path == "":
		return nil, invalid(`the path is empty; pass the path of a file, or ":memory:"`)
	case strings.HasPrefix(path, "file:"):
		return nil, invalid("the path begins with file:, but is not taken for a URI; pass the path alone, or open the database with your own parameters and pass it to New")
	case strings.ContainsRune(path, 0):
		return nil, invalid("the path has a zero byte; no file can be called so")
	}
	return newStore(&Store{path: path}, opts)
}

// New returns a Store that reads and writes through db, a pool of SQLite connections by this or
// another driver. It does no I/O, changes no setting of db and does not close it. An in-memory
// database needs db.SetMaxOpenConns(1), since each connection would have its own.
//
// The database should be in WAL mode, where refusals need not wait for writers. A busy timeout is not
// needed, and should not be long: this Store waits for locks by itself, until the operation's time
// limit or the caller's context ends it, and a Sweep or Check for 5 s; not every driver ends a wait
// inside SQLite when the context does.
func New(db *sql.DB, opts ...Option) (*Store, error) {
	if db == nil {
		return nil, invalid("the *sql.DB is nil; pass what sql.Open returned, or use Open")
	}
	p := &sqlPool{db: db}
	return newStore(&Store{db: db, reader: p, writer: p}, opts)
}

func newStore(s *Store, opts []Option) (*Store, error) {
	s.now, s.turn, s.queue = time.Now, make(chan struct{}, 1), s.newQueue()
	s.breaker.Down = down
	for _, opt := range opts {
		if opt == nil {
			return nil, invalid("an option is nil; leave it out")
		}
		if err := opt(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Do carries out op, as [limiter.Store] says.
func (s *Store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	pass, err := s.breaker.Enter(&op)
	if err != nil {
		return limiter.State{}, fmt.Errorf("sqlite: %w", err)
	}
	state, err := s.do(ctx, op)
	pass.Leave(&op, err)
	if err != nil {
		return limiter.State{}, fmt.Errorf("sqlite: %w", err)
	}
	return state, nil
}

// Close closes what [Open] opened; the pool given to [New] stays open. Operations that are under way
// end, later ones fail. Only the first call does anything.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.closePools()
}

func invalid(problem string) error {
	return fmt.Errorf("sqlite: %w: %s", limiter.ErrInvalid, problem)
}
