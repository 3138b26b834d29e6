package database

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
)

// Kind is the kind of a policy, which is also the table of its rows.
type Kind string

// The kinds of policies.
const (
	Bucket Kind = "bucket"
	Window Kind = "window"
)

// Row is the stored state of one key.
type Row struct {
	Kind    Kind
	Limiter string
	Key     []byte // as stored
	State   limiter.Row
	Now     int64 // the database's clock when the row was read, in ns since 1970
}

// columns returns the columns of a table in the order of [DB.scan].
func (k Kind) columns() string {
	if k == Bucket {
		return "'bucket', limiter, key, full_at, 0, 0, at, step, capacity"
	}
	return "'window', limiter, key, 0, window_start, used, at, win, lim"
}

// Table returns the name of the table.
func (k Kind) Table() string {
	if k == Bucket {
		return "limiter_token_buckets"
	}
	return "limiter_fixed_windows"
}

// Kinds lists the kinds of policies.
func Kinds() []Kind { return []Kind{Bucket, Window} }

// Find returns the rows of a key by their primary keys: one for each kind of policy, or fewer.
func (db *DB) Find(ctx context.Context, name string, key []byte) ([]Row, error) {
	var found []Row
	for _, k := range Kinds() {
		rows, err := db.query(ctx, "SELECT "+k.columns()+", "+db.now()+" FROM @"+k.Table()+
			" WHERE limiter = $1 AND key = $2", name, key)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

func (db *DB) query(ctx context.Context, statement string, args ...any) ([]Row, error) {
	rows, err := db.SQL.QueryContext(ctx, db.text(statement), args...)
	if err != nil {
		return nil, db.explain(err)
	}
	defer rows.Close()
	var found []Row
	for rows.Next() {
		r, err := db.scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, db.explain(rows.Err())
}

// scan reads the columns of a table, others, and the clock.
func (db *DB) scan(rows *sql.Rows, others ...any) (Row, error) {
	var r Row
	s := &r.State
	into := append([]any{&r.Kind, &r.Limiter, &r.Key, &s.FullAt, &s.Start, &s.Used, &s.At, &s.Period, &s.Limit}, others...)
	err := rows.Scan(append(into, &r.Now)...)
	if db.Dialect == migrations.SQLite {
		r.Now = time.Now().UnixNano() // the stores use this clock, which is finer than SQL's
	}
	return r, err
}

// Policy returns the policy that wrote the row, as far as the row tells. It does not tell whether a
// bucket's rate was 1 per second or 60 per minute, nor whether a window counts refused requests.
func (r Row) Policy() limiter.Policy {
	if r.Kind == Bucket {
		return limiter.TokenBucket{Capacity: r.State.Limit, Refill: 1, Interval: time.Duration(r.State.Period)}
	}
	return limiter.FixedWindow{Limit: r.State.Limit, Window: time.Duration(r.State.Period)}
}

// State is what a key may do.
type State struct {
	limiter.Result
	// Used is the used part of the limit. It is above the limit if the key is in debt, has
	// reservations, or is blocked.
	Used int64
}

// Look returns what the key may do at r.Now, under the policy that wrote the row.
func (r Row) Look(ctx context.Context) (State, error) {
	l, err := limiter.New(frozen{r}, "row", r.Policy())
	if err != nil {
		return State{}, err
	}
	res, err := l.Peek(ctx, "key")
	if err != nil {
		return State{}, err
	}
	used := res.Used
	if r.Kind == Bucket {
		used = int64((res.ResetAfter + time.Duration(r.State.Period) - 1) / time.Duration(r.State.Period))
	}
	return State{res, used}, nil
}

// frozen is a store that has one row and whose clock stands still.
type frozen struct{ row Row }

// Do implements [limiter.Store].
func (f frozen) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	_, s := op.Apply(f.row.State, f.row.Now)
	return s, nil
}
