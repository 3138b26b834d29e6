// Package cuts does operations on connections that are cut, and checks whether each was carried out.
package cuts

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/leases"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

const (
	// timeout is the time limit of the operations and of connecting. They end long before on an idle machine.
	timeout = 30 * time.Second
	never   = 240 * time.Hour // an interval in which no token comes back during a test
	hold    = time.Hour       // the length of a lease
)

// noon is the time of operations with a clock of their own: no window or lease ends then.
var noon = time.Date(2026, 6, 1, 12, 30, 0, 0, time.UTC)

// Client repeats an operation in one mode, on one connection that a proxy cuts. It is for one goroutine.
type Client struct {
	mode  Mode
	kind  Kind
	name  string // of its limiters
	proxy *cutproxy.Proxy
	has   func(key string) bool // whether the worker whose connections are cut has a key; nil without Citus
	pool  *pgxpool.Pool
	db    *pgx.Conn // past the proxy

	limiters map[limit]*limiter.Limiter
	inFlight *limiter.Concurrency
	lease    *limiter.Lease // of the latest acquire
	releases int            // of the keys, less the acquires of unknown outcome
	serial   int
	keys     []string             // of the operation that is next
	booked   *limiter.Reservation // by its setup
	dial     [2]int64             // bytes of the making of a connection
	unheeded bool                 // the connection was cut, and nobody knows it yet
}

// NewClient returns a Client to the server of dsn, which has the tables. It ends with the test, or with Close.
func NewClient(t testing.TB, dsn string, mode Mode, kind Kind) (*Client, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	w := &Client{mode: mode, kind: kind, name: fmt.Sprint(mode.Name, "/", kind.number), proxy: cutproxy.New(t, int(config.ConnConfig.Port))}
	config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(w.proxy.Port())
	err = w.connect(t, dsn, config)
	return w, err
}

// NewCitusClient returns a Client to the coordinator of dsn, which has the tables in a schema. It cuts what the
// coordinator sends to a worker through a proxy. has reports whether that worker has a key. See [Client.CutWorker].
func NewCitusClient(t testing.TB, dsn, schema string, kind Kind, proxy *cutproxy.Proxy, has func(key string) bool) (*Client, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	mode := Mode{pool: pgx.QueryExecModeCacheStatement, opts: []postgres.Option{postgres.WithSchema(schema), postgres.WithCitus()}}
	w := &Client{mode: mode, kind: kind, name: fmt.Sprintf("%d/%d", kind.number, proxy.Port()), proxy: proxy, has: has}
	if err := w.connect(t, dsn, config); err != nil {
		return nil, err
	}
	_, err = w.db.Exec(t.Context(), "SET search_path = "+schema)
	return w, err
}

// connect makes the Client's connections and limiters.
func (w *Client) connect(t testing.TB, dsn string, config *pgxpool.Config) (err error) {
	conn, mode, kind := config.ConnConfig, w.mode, w.kind
	conn.ConnectTimeout = timeout
	conn.DefaultQueryExecMode = mode.pool
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // its bytes would be counted
	if kind.strict {
		conn.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	}
	if w.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config); err != nil {
		return err
	}
	t.Cleanup(w.pool.Close)
	store, err := postgres.New(w.pool, mode.opts...)
	if err != nil {
		return err
	}
	if err := w.makeLimiters(store); err != nil {
		return err
	}
	if w.db, err = pgx.Connect(t.Context(), dsn); err != nil {
		return err
	}
	t.Cleanup(w.Close)
	if kind.strict { // the store finds out that transactions of its pool see a snapshot
		_, err = w.limiters[bucket].Allow(t.Context(), strictKey)
	}
	return err
}

const strictKey = "strict"

// Conflict is SQL for a trigger. In a transaction that sees a snapshot a take from strictKey meets another one.
const Conflict = `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('transaction_isolation') = 'repeatable read' THEN
		RAISE EXCEPTION 'a conflict' USING ERRCODE = '40001';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER conflict BEFORE INSERT ON limiter_token_buckets FOR EACH ROW WHEN (NEW.key = '` + strictKey + `') EXECUTE FUNCTION conflict()`

// limit names a limiter of a Client.
type limit string

const (
	bucket, window limit = "bucket", "window" // with room
	wider          limit = "wider"            // a bucket of another capacity
	sliding        limit = "sliding"          // a sliding window with room
	tight, narrow  limit = "tight", "narrow"  // a bucket and a window of 1
	counts         limit = "counts"           // a window that counts refusals
	line, rota     limit = "line", "rota"     // a bucket and a window of which 1 can be booked ahead
	calendar       limit = "calendar"         // a year of the calendar
)

func (w *Client) makeLimiters(store limiter.Store) (err error) {
	ownTime := limiter.WithClock(func() time.Time { return noon })
	w.limiters = map[limit]*limiter.Limiter{}
	for name, policy := range map[limit]limiter.Policy{
		bucket: limiter.TokenBucket{Capacity: 1000, Refill: 1, Interval: never},
		wider:  limiter.TokenBucket{Capacity: 1001, Refill: 1, Interval: never},
		tight:  limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: never},
		line:   limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 30 * time.Minute},
		window: limiter.FixedWindow{Limit: 1000, Window: 100 * never},
		narrow: limiter.FixedWindow{Limit: 1, Window: 100 * never},
		counts: limiter.FixedWindow{Limit: 1000, Window: 100 * never, CountRejected: true},
		rota:   limiter.FixedWindow{Limit: 1, Window: time.Hour},

		calendar: limiter.CalendarWindow{Limit: 1000, Period: limiter.Year},
		sliding:  limiter.SlidingWindow{Limit: 1000, Window: 100 * never},
	} {
		options := []limiter.Option{limiter.WithTimeout(timeout)}
		if name == rota {
			options = append(options, ownTime)
		}
		if w.limiters[name], err = limiter.New(store, w.name, policy, options...); err != nil {
			return err
		}
	}
	counted := leases.Recorder{Store: store, Note: func(e leases.Event) {
		switch {
		case e.Kind == limiter.OpRelease && e.Class == "":
			w.releases++
		case e.Kind == limiter.OpAcquire && e.Class == outcome.Unknown:
			w.releases--
		}
	}}
	w.inFlight, err = limiter.NewConcurrency(counted, w.name, limiter.InFlight{Limit: 2, Hold: hold}, limiter.WithTimeout(timeout), ownTime)
	return err
}

// Close closes the Client's connections.
func (w *Client) Close() {
	w.pool.Close()
	_ = w.db.Close(context.Background())
}

// ready prepares an operation on new keys, which have the same length as those before.
func (w *Client) ready() error {
	key := func(i int) string { return fmt.Sprintf("%08d%c", w.serial, 'a'+i) }
	for w.serial++; w.has != nil && !w.has(key(0)); {
		w.serial++
	}
	w.keys, w.releases = []string{key(0), key(1), key(2)}, 0
	if w.unheeded {
		w.unheeded = false
		// The first call finds the connection broken.
		if _, err := w.limiters[bucket].Peek(context.Background(), "another key"); err != nil && outcome.Of(false, err) != outcome.NotApplied {
			return err
		}
	}
	if w.kind.setup == nil {
		return nil
	}
	return w.kind.setup(w)
}

// Mode is a way in which pgx sends statements.
type Mode struct {
	Name string
	pool pgx.QueryExecMode
	opts []postgres.Option
	text bool // statements are sent as text each time
}

// Modes are all that a store can be given. The last one it replaces by exec: in the simple protocol pgx takes
// a connection that broke after a commit as one that never sent the statement.
func Modes() (modes []Mode) {
	for _, m := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	} {
		modes = append(modes, Mode{
			Name: strings.ReplaceAll(m.String(), " ", "_"), pool: pgx.QueryExecModeCacheStatement,
			opts: []postgres.Option{postgres.WithQueryExecMode(m)}, text: m == pgx.QueryExecModeExec,
		})
	}
	return append(modes, Mode{Name: "simple_protocol", pool: pgx.QueryExecModeSimpleProtocol, text: true})
}
