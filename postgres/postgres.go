package postgres

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/breaker"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/sweep"
	"github.com/sqlimit/limiter/internal/tables"
)

// DB is what a [Store] runs its statements on: a [*pgxpool.Pool], a [*pgx.Conn] or a [pgx.Tx]. On a
// connection or transaction the store runs one call after another. If the caller has begun a
// transaction there, the store never commits it or rolls it back. Where the store needs a
// transaction of its own, it makes a savepoint.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store is a [limiter.Store] in PostgreSQL. Make one with [New] or [Open]; the zero Store is not
// valid. A Store is safe for concurrent use, also on a connection or transaction.
type Store struct {
	options
	db     DB            // of New, if it is not a pool
	inUse  chan struct{} // full while db is in use
	config *pgxpool.Config
	strict atomic.Bool // the pool's default isolation gave a 40001

	deadlines opcontext.Deadlines
	breaker   breaker.Breaker
	retries   retrier
	slots     *batch.Slots // for statements that wait long for a row lock
	counters  batch.Counters
	sweeper   sweep.Sweeper

	rooms *rooms // with WithCitus

	tables    []func() *table  // in the order of their kinds, each opened at its first use
	calendars func() *table    // the one of fixed windows, with the statements of calendars
	allTexts  sync.Map         // statements of decisions over several limits, by allKey
	clock     func() time.Time // of tests, instead of time.Now: see [Store.numbers]

	mu     sync.Mutex
	pool   *pgxpool.Pool // of New, or made from config at the first decision
	closed bool
}

// New returns a Store on db. It does no I/O. The Store never closes db. The error matches
// [limiter.ErrInvalid].
func New(db DB, opts ...Option) (*Store, error) {
	if v := reflect.ValueOf(db); db == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("the database is nil (%T); pass a *pgxpool.Pool, *pgx.Conn or pgx.Tx", db)
	}
	s := &Store{db: db}
	var conn *pgx.ConnConfig
	if pool, ok := db.(*pgxpool.Pool); ok {
		s.db, s.pool = nil, pool
		conn = pool.Config().ConnConfig
	} else {
		s.inUse = make(chan struct{}, 1)
		if c := connOf(db); c != nil {
			conn = c.Config()
		}
	}
	if err := s.configure(conn, opts); err != nil {
		return nil, err
	}
	if _, tx := db.(pgx.Tx); tx && s.asyncCommit {
		return nil, invalid("WithAsyncCommit on a transaction would change how all of it commits; leave it out, or pass a pool")
	}
	return s, nil
}

// Open returns a Store on a connection pool of its own. It does no I/O: the pool connects at the
// first decision. Call [Store.Close] when the Store is not needed any more.
//
// The dsn is a URL or a list of keywords, as for [pgxpool.ParseConfig], including pool_max_conns
// and the other settings of the pool. Missing settings come from the PG* environment variables,
// except that connect_timeout is 3 s by default. The error matches [limiter.ErrInvalid].
func Open(dsn string, opts ...Option) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, invalid("the DSN: %s", dsnReason(err))
	}
	PingAfterFreeze(config)
	if config.ConnConfig.ConnectTimeout == 0 {
		// As long as a decision waits for it: a dial that hangs holds its place in the pool.
		config.ConnConfig.ConnectTimeout = opcontext.DialTimeout
	}
	s := &Store{config: config}
	if err := s.configure(config.ConnConfig, opts); err != nil {
		return nil, err
	}
	return s, nil
}

// configure applies the options.
func (s *Store) configure(conn *pgx.ConnConfig, opts []Option) error {
	s.schema, s.retries.counted = pgschema.Default, &s.counters.Retries
	for _, opt := range opts {
		if opt == nil {
			return invalid("an option is nil; leave it out")
		}
		if err := opt(&s.options); err != nil {
			return err
		}
	}
	if s.citus && s.asyncCommit {
		return invalid("WithAsyncCommit does not reach the workers of Citus; leave it out, and set synchronous_commit there")
	}
	switch {
	case conn == nil:
	case s.mode == nil && needsExecMode(conn, conn.DefaultQueryExecMode):
		exec := pgx.QueryExecModeExec
		s.mode = &exec
	case s.mode != nil && needsExecMode(conn, *s.mode):
		return invalid("WithQueryExecMode(%v) needs a cache, and that of the connection has capacity 0; leave the option out, or raise statement_cache_capacity or description_cache_capacity", *s.mode)
	}
	if s.db == nil {
		s.deadlines.Dialing, s.deadlines.WaitReason = s.dialing, s.waitReason
		s.breaker.IsOutage = s.isOutage
		s.retries.conns = int(s.maxConns())
	}
	s.boundsWaits = s.db == nil && !s.citus
	if s.citus {
		s.rooms = &rooms{seed: maphash.MakeSeed()}
	}
	s.slots = batch.NewSlots(max(1, int(s.maxConns())/2))
	for _, t := range tables.All {
		s.tables = append(s.tables, sync.OnceValue(func() *table { return s.open(t, false) }))
		if t.IsCalendar != nil {
			s.calendars = sync.OnceValue(func() *table { return s.open(t, true) })
		}
	}
	return nil
}

// Stats returns what the Store has done since it was made. It does no I/O and waits for none. On a
// connection or transaction of the caller, nothing is queued, retried or counted as lost.
func (s *Store) Stats() limiter.StoreStats {
	stats := s.counters.Stats()
	stats.BreakerOpen, stats.BreakerOpenings = s.breaker.Stats()
	return stats
}

// Provisional reports whether the Store runs on a connection or transaction of the caller, where a
// rollback may undo decisions. It implements [limiter.Provisional].
func (s *Store) Provisional() bool { return s.db != nil }

// Close closes the pool that [Open] made, and waits until all its connections are released. It does
// not close what was passed to [New]; that Store stays usable. Close always returns nil and may be
// called more than once.
func (s *Store) Close() error {
	if s.config == nil {
		return nil
	}
	s.mu.Lock()
	pool := s.pool
	s.pool, s.closed = nil, true
	s.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("postgres: %w: %s", limiter.ErrInvalid, fmt.Sprintf(format, args...))
}

// needsExecMode reports whether the store cannot use a query mode on the connection: the simple
// protocol, or a mode whose cache is turned off, in which pgx fails each statement.
func needsExecMode(conn *pgx.ConnConfig, mode pgx.QueryExecMode) bool {
	switch mode {
	case pgx.QueryExecModeSimpleProtocol:
		return true
	case pgx.QueryExecModeCacheStatement:
		return conn.StatementCacheCapacity <= 0
	case pgx.QueryExecModeCacheDescribe:
		return conn.DescriptionCacheCapacity <= 0
	default:
		return false
	}
}
