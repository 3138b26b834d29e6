package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/coalesce"
)

const (
	// mergedRows is how many keys one statement takes.
	mergedRows = 256
	// sharedStatements and aloneStatements are how many are under way at a time.
	sharedStatements = 2
	aloneStatements  = 2
	// crowd is how many takes of one key wait before it travels alone.
	crowd = 8
	// lockTimeout is how long a merged statement waits for a row that somebody has
	// locked, before its keys are tried each on its own.
	lockTimeout = "100ms"
	// patience is how long one of a single row counts as under way, which may wait for its
	// lock until its time is over.
	patience = 100 * time.Millisecond
)

// merges reports whether a take can go out together with others: on a pool, where it
// can be left behind, and without a booking ahead, whose reach no row of a merged
// statement has room for. One that costs nothing has no units to count.
func (s *Store) merges(op limiter.Op) bool {
	return s.db == nil && op.MaxWait == 0 && op.Timeout > 0 && op.Cost > 0
}

// mergedTable is what differs between the merged statements of the two tables.
type mergedTable interface {
	// hot returns the table for a single take.
	hot(s *Store) hotTable
	// statement returns the merged statement.
	statement(s *Store) string
	// numbers returns the two columns of op's policy, and what the statement is to be
	// told of its cost.
	numbers(op limiter.Op) (period, limit, cost int64)
	// columns is where the merged statement's answer about a row goes.
	columns(*limiter.State) []any
	// finish sets right what the statement reports of a row otherwise than the hot one.
	finish(r *coalesce.Row)
}

func (s *Store) newQueue(table mergedTable) *coalesce.Queue {
	return coalesce.New(sender{s, table}, coalesce.Limits{
		Rows: mergedRows, Shared: sharedStatements, Alone: aloneStatements, Crowd: crowd, Patience: patience, Time: &s.time,
	})
}

// sender sends the statements of a queue.
type sender struct {
	*Store
	table mergedTable
}

func (s sender) Connect(ctx context.Context) (coalesce.Conn, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &senderConn{s, conn, fresh(conn)}, nil
}

type senderConn struct {
	sender
	conn  *pgxpool.Conn
	fresh bool
}

func (c *senderConn) Fresh() bool { return c.fresh }
func (c *senderConn) Release()    { release(c.conn) }

func (c *senderConn) Send(ctx context.Context, rows []*coalesce.Row) error {
	return c.runOn(ctx, c.conn, write, func(db DB) error {
		if len(rows) == 1 && rows[0].Units == 1 {
			return c.sendOne(ctx, db, rows[0])
		}
		return c.sendMerged(ctx, db, rows)
	})
}

// sendOne sends the hot statement for a row of a single take.
func (c *senderConn) sendOne(ctx context.Context, db DB, r *coalesce.Row) (err error) {
	r.State, r.Decided, err = c.takeOn(ctx, db, c.table.hot(c.Store), r.Op)
	r.Granted = 0
	if r.State.Took {
		r.Granted = 1
	}
	return err
}

// sendMerged sends one statement for all rows.
func (c *senderConn) sendMerged(ctx context.Context, db DB, rows []*coalesce.Row) error {
	n := len(rows)
	names, keys, numbers := make(textsArg, n), make(byteasArg, n), make(int8sArg, 6*n)
	periods, limits, costs, times, units, unseen := numbers[:n], numbers[n:2*n], numbers[2*n:3*n], numbers[3*n:4*n], numbers[4*n:5*n], numbers[5*n:]
	for i, r := range rows {
		names[i], keys[i] = textArg(r.Op.Name), byteaArg(r.Op.Key)
		period, limit, cost := c.table.numbers(r.Op)
		periods[i], limits[i], costs[i] = int8Arg(period), int8Arg(limit), int8Arg(cost)
		times[i], units[i] = int8Arg(r.Op.At), int8Arg(r.Units)
		if e := c.expect.of(r.Op); e == unsure || e == granted { // there is a row, and perhaps room
			unseen[i] = 1
		}
		r.Decided = false
	}
	lockTimeout := lockTimeout
	if n == 1 {
		lockTimeout = "0" // its time limit alone ends it, as that of a lone take
	}
	answers, err := db.Query(ctx, c.table.statement(c.Store),
		c.args([]any{&names, &keys, &periods, &limits, &costs, &times, &units, lockTimeout, &unseen})...)
	if err != nil {
		return err
	}
	defer answers.Close()
	var answer struct {
		place   int64 // of the row, counted from 1, or 0: then name and key tell it
		name    string
		key     string // in hex
		granted int64
		state   limiter.State
	}
	columns := append([]any{&answer.place, &answer.name, &answer.key, &answer.granted}, c.table.columns(&answer.state)...)
	added, now := 0, c.expect.now()
	for answers.Next() {
		if err := answers.Scan(columns...); err != nil {
			return err
		}
		var r *coalesce.Row
		if answer.place > 0 && answer.place <= int64(n) {
			r = rows[answer.place-1]
		} else {
			key, err := hex.DecodeString(answer.key)
			if err != nil {
				return err
			}
			r, added = find(rows, added, answer.name, key)
		}
		if r == nil {
			return fmt.Errorf("%w: the database answers for a key that it was not asked about", limiter.ErrOutcomeUnknown)
		}
		r.State, r.Granted = answer.state, answer.granted
		r.State.Tick, r.State.Took = tickOf(r.Op), answer.granted > 0
		r.State.Row.Period, r.State.Row.Limit, _ = c.table.numbers(r.Op)
		r.Decided = r.State.Row.At <= r.State.Now+r.Op.Tolerance(r.State.Row)
		c.table.finish(r)
		if r.Decided {
			c.expect.keep(r.Op, r.State, now)
		}
	}
	return answers.Err()
}

// find returns the row of a key, and where to look for the next one: rows that were
// added are told in their order, if not by any promise.
func find(rows []*coalesce.Row, from int, name string, key []byte) (*coalesce.Row, int) {
	for i := range rows {
		r := rows[(from+i)%len(rows)]
		if r.Op.Key == string(key) && r.Op.Name == name {
			return r, from + i + 1
		}
	}
	return nil, from
}

type bucketRows struct{}

func (bucketRows) hot(s *Store) hotTable { return buckets{s} }

func (bucketRows) statement(s *Store) string { return s.sql.bucketTakes }

func (bucketRows) numbers(op limiter.Op) (period, limit, cost int64) {
	p, step := bucketOf(op)
	return step, p.Capacity, op.Cost * step
}

func (bucketRows) columns(s *limiter.State) []any {
	return []any{&s.Row.FullAt, &s.Now, &s.Row.At}
}

func (bucketRows) finish(*coalesce.Row) {}

type windowRows struct{}

func (windowRows) hot(s *Store) hotTable { return windows{s} }

func (windowRows) statement(s *Store) string { return s.sql.windowTakes }

func (windowRows) numbers(op limiter.Op) (period, limit, cost int64) {
	p, length := windowOf(op)
	return length, p.Limit, op.Cost
}

func (windowRows) columns(s *limiter.State) []any {
	return []any{&s.Row.Start, &s.Row.Used, &s.Now, &s.Row.At}
}

// finish lets a clock behind the row's count as the row's.
func (windowRows) finish(r *coalesce.Row) { r.State.Now = max(r.State.Now, r.State.Row.At) }
