package database

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
)

// Kind is the kind of a policy in one word, such as bucket. Each kind has a table of its own.
type Kind string

// tables has the table of each kind.
var tables = func() map[Kind]migrations.Table {
	all := map[Kind]migrations.Table{}
	for _, t := range migrations.Tables() {
		all[Kind(t.Label)] = t
	}
	return all
}()

// Kinds lists the kinds of policies.
func Kinds() (kinds []Kind) {
	for _, t := range migrations.Tables() {
		kinds = append(kinds, Kind(t.Label))
	}
	return kinds
}

// KindOf returns the kind of a policy.
func KindOf(p limiter.Policy) Kind {
	for _, t := range migrations.Tables() {
		if t.Kind == limiter.KindOf(p) {
			return Kind(t.Label)
		}
	}
	return ""
}

// Table returns the name of the table.
func (k Kind) Table() string { return tables[k].Name }

// columns returns the columns of the table in the order of [DB.scan].
func (k Kind) columns() string { return "limiter, hex(key), " + strings.Join(tables[k].Columns, ", ") }

// Row is the stored state of one key.
type Row struct {
	Kind    Kind
	Limiter string
	Key     []byte // as stored
	State   limiter.Row
	Now     int64 // the database's clock when the row was read, in ns since 1970
}

// Find returns the rows of a key by their primary keys: one for each kind of policy, or fewer.
func (db *DB) Find(ctx context.Context, name string, key []byte) ([]Row, error) {
	var found []Row
	for _, k := range Kinds() {
		rows, err := db.query(ctx, k, "SELECT "+k.columns()+", "+db.now()+" FROM @"+k.Table()+
			" WHERE limiter = $1 AND key = $2", name, key)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

func (db *DB) query(ctx context.Context, k Kind, statement string, args ...any) ([]Row, error) {
	rows, err := db.SQL.QueryContext(ctx, db.text(statement), args...)
	if err != nil {
		return nil, db.Explain(err)
	}
	defer rows.Close()
	var found []Row
	for rows.Next() {
		r, err := db.scan(rows, k)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, db.Explain(rows.Err())
}

// scan reads the columns of a table, others, and the clock.
func (db *DB) scan(rows *sql.Rows, k Kind, others ...any) (Row, error) {
	r := Row{Kind: k}
	into := append([]any{&r.Limiter, hexKey{&r.Key}}, tables[k].Fields(&r.State)...)
	err := rows.Scan(append(append(into, others...), &r.Now)...)
	if db.Dialect == migrations.SQLite {
		r.Now = time.Now().UnixNano() // the stores use this clock, which is finer than SQL's
	}
	return r, err
}

// Policy returns the policy that wrote the row, as far as the row tells.
func (r Row) Policy() limiter.Policy { return tables[r.Kind].Policy(r.State) }

// State is what a key may do.
type State struct {
	limiter.Result
	// Used is the used part of the limit. It is above the limit if the key is in debt, has
	// reservations, or is blocked.
	Used int64
}

// Look returns what the key may do at r.Now, under the policy that wrote the row.
func (r Row) Look(ctx context.Context) (State, error) {
	var res limiter.Result
	l, err := newPeeker(frozen{r}, r.Policy())
	if err == nil {
		res, err = l.Peek(ctx, "key")
	}
	if err != nil {
		return State{}, err
	}
	return State{res, tables[r.Kind].Used(r.State, res)}, nil
}

// frozen is a store that has one row and whose clock stands still.
type frozen struct{ row Row }

// Do implements [limiter.Store]. A row does not tell that a calendar wrote it, but it has the edges of its
// window. So the time is shifted until they are multiples of the window's length.
func (f frozen) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	row, off := f.row.State, f.row.offset()
	row.Start, row.At = row.Start-off, max(0, row.At-off)
	_, s := op.Apply(row, f.row.Now-off)
	return s, nil
}

// offset is how far the start of the row's window is from a multiple of its length. It is 0 unless a calendar
// wrote the row.
func (r Row) offset() int64 {
	if r.State.Period <= 0 {
		return 0
	}
	return r.State.Start % r.State.Period
}
