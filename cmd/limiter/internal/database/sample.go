package database

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqlimit/limiter/migrations"
)

const (
	// samplePages is how many pages (8 kB each) of a PostgreSQL table one sample reads at most.
	samplePages = 512
	// chunkRows is how many rows of a table the walks through its limiters read, by primary key. In
	// SQLite such rows lie beside each other. In PostgreSQL each may be on a page of its own.
	chunkRows, chunkRowsPostgres = 20_000, 4000
)

// sample returns a FROM item with a bounded part of a table in PostgreSQL, and the share of the table
// that it reads: 1 for the whole table. Every page is equally likely to be in the sample.
func (db *DB) sample(ctx context.Context, k Kind) (from string, share float64, err error) {
	size := "pg_catalog.pg_relation_size"
	if distributed, err := db.distributed(ctx); err != nil {
		return "", 0, err
	} else if slices.Contains(distributed, k) {
		size = "pg_catalog.citus_relation_size"
	}
	var pages int64
	if err := db.pool.QueryRow(ctx, "SELECT "+size+"($1::text::regclass) / 8192", db.text("@"+k.Table())).Scan(&pages); err != nil {
		return "", 0, db.Explain(err)
	}
	if pages <= samplePages {
		return "@" + k.Table() + " AS part", 1, nil
	}
	share = samplePages / float64(pages)
	return fmt.Sprintf("@%s AS part TABLESAMPLE SYSTEM (%g)", k.Table(), 100*share), share, nil
}

// walk reads the keys of a limiter in order, one chunk at a time. After the last chunk it starts again.
type walk struct {
	kind    Kind
	limiter string
	after   []byte // the last key of the previous chunk
	begun   bool
}

// chunk is a FROM item with the next keys of a walk, for the arguments limiter, after and rows.
func (k Kind) chunk() string {
	return "(SELECT * FROM @" + k.Table() + " WHERE limiter = $1 AND key > $2 ORDER BY key LIMIT $3) AS part"
}

// args returns the arguments of [Kind.chunk].
func (w *walk) args(rows int64) []any { return []any{w.limiter, w.after, rows} }

// begin starts a walk at a random key if the limiter has more than a chunk. It reports whether one
// chunk has all keys.
func (w *walk) begin(ctx context.Context, db *DB, rows int64) (all bool, err error) {
	if w.begun {
		return false, nil
	}
	w.begun, w.after = true, []byte{}
	last, err := w.end(ctx, db, rows)
	if err != nil || last == nil {
		return last == nil, err
	}
	var first, final []byte
	for order, key := range map[string]*[]byte{"ASC": &first, "DESC": &final} {
		err := db.SQL.QueryRowContext(ctx, db.text("SELECT hex(key) FROM @"+w.kind.Table()+" WHERE limiter = $1 ORDER BY key "+order+" LIMIT 1"), w.limiter).Scan(hexKey{key})
		if err != nil {
			return false, db.Explain(err)
		}
	}
	w.after = between(first, final, 0.9*rand.Float64()) // never near the end, so that enough keys follow
	return false, nil
}

// next moves on to the chunk after this one, or to the first one.
func (w *walk) next(ctx context.Context, db *DB, rows int64) error {
	last, err := w.end(ctx, db, rows)
	if last == nil {
		last = []byte{}
	}
	w.after = last
	return err
}

// end returns the last key of the chunk, or nil if no key follows the chunk.
func (w *walk) end(ctx context.Context, db *DB, rows int64) (key []byte, err error) {
	err = db.SQL.QueryRowContext(ctx, db.text("SELECT hex(key) FROM @"+w.kind.Table()+
		" WHERE limiter = $1 AND key > $2 ORDER BY key LIMIT 1 OFFSET $3"), w.args(rows-1)...).Scan(hexKey{&key})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return key, db.Explain(err)
}

// between returns a key at a share of the way from one key to another, by the four bytes that follow
// what the two have in common.
func between(first, last []byte, share float64) []byte {
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	number := func(key []byte) uint32 {
		return binary.BigEndian.Uint32(append(bytes.Clone(key[min(n, len(key)):]), 0, 0, 0, 0))
	}
	from, to := number(first), number(last)
	return binary.BigEndian.AppendUint32(bytes.Clone(first[:n]), from+uint32(share*float64(to-from)))
}

// What [Count] counted.
const (
	allRows   = "all read"
	inSample  = "in a sample"
	estimated = "estimated from a sample"
)

// Count is a number of rows.
type Count struct {
	Rows, Expired int64
	Of            string // what was counted
}

// String returns the count for people.
func (c Count) String() string { return fmt.Sprintf("%d of %d rows, %s", c.Expired, c.Rows, c.Of) }

// Partial reports whether the count covers only a part of the table.
func (c Count) Partial() bool { return c.Of == inSample }

// CountExpired counts the rows of a table that a sweep would delete. It reads only a sample of a large
// table.
func (db *DB) CountExpired(ctx context.Context, k Kind) (Count, error) {
	if db.Dialect == migrations.Postgres {
		from, share, err := db.sample(ctx, k)
		if err != nil {
			return Count{}, err
		}
		c, err := db.countExpired(ctx, k, from)
		if share < 1 {
			c = Count{int64(float64(c.Rows) / share), int64(float64(c.Expired) / share), estimated}
		}
		return c, err
	}
	names, err := db.Limiters(ctx, MaxLimiters)
	total := Count{Of: allRows}
	for _, name := range names {
		w := walk{kind: k, limiter: name}
		all, err := w.begin(ctx, db, chunkRows)
		if err != nil {
			return total, err
		}
		if !all {
			total.Of = inSample
		}
		c, err := db.countExpired(ctx, k, k.chunk(), w.args(chunkRows)...)
		if err != nil {
			return total, err
		}
		total.Rows, total.Expired = total.Rows+c.Rows, total.Expired+c.Expired
	}
	return total, err
}

// Rows returns how many rows tables have for a limiter, or for all limiters if name is empty. The
// number is estimated for a large table in PostgreSQL. In SQLite this reads all these rows.
func (db *DB) Rows(ctx context.Context, name string, kinds ...Kind) (rows int64, err error) {
	for _, k := range kinds {
		n, err := db.rowsOf(ctx, k, name)
		if err != nil {
			return 0, err
		}
		rows += n
	}
	return rows, nil
}

// countTime is how long [DB.CountRows] may take.
const countTime = 5 * time.Second

// CountRows returns the number that [DB.Rows] returns, or 0 if that fails or takes long.
func (db *DB) CountRows(ctx context.Context, name string, kinds ...Kind) int64 {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	rows, err := db.Rows(ctx, name, kinds...)
	if err != nil {
		return 0
	}
	return rows
}

func (db *DB) rowsOf(ctx context.Context, k Kind, name string) (rows int64, err error) {
	from, share := "@"+k.Table(), 1.0
	if db.Dialect == migrations.Postgres {
		if from, share, err = db.sample(ctx, k); err != nil {
			return 0, err
		}
	}
	var args []any
	if name != "" {
		from, args = from+" WHERE limiter = $1", []any{name}
	}
	err = db.SQL.QueryRowContext(ctx, db.text("SELECT count(*) FROM "+from), args...).Scan(&rows)
	return int64(float64(rows) / share), db.Explain(err)
}

func (db *DB) countExpired(ctx context.Context, k Kind, from string, args ...any) (Count, error) {
	c := Count{Of: allRows}
	err := db.SQL.QueryRowContext(ctx, db.text(fmt.Sprintf(
		"SELECT count(*), count(CASE WHEN %s <= %s - 3600000000000 THEN 1 END) FROM %s", tables[k].Unused(db.Dialect), db.now(), from)), args...).
		Scan(&c.Rows, &c.Expired)
	return c, db.Explain(err)
}
