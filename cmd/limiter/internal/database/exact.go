package database

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlimit/limiter/migrations"
)

const (
	// exactTime is how long a statement of [DB.Exact] should take.
	exactTime = 20 * time.Millisecond
	// leastPages and mostPages are how many pages (8 kB each) such a statement reads in PostgreSQL.
	leastPages, mostPages = 16, 4096
	// exactRows is how many rows such a statement reads by primary key, in SQLite and on Citus.
	exactRows = 2000
)

// exact is one run of [DB.Exact].
type exact struct {
	db      *DB
	limiter string
	keys    int
	timeout time.Duration // of a statement
	report  func(rows int64, done float64)

	reading  Reading
	best     []Usage
	progress Progress
}

// Exact returns the keys of a limiter that use most of their limits. Unlike [Top.Read] it reads all
// rows: once, in the order in which they are stored. It rests after each statement as long as that
// took. It calls report after each statement.
//
// In PostgreSQL it may miss a key whose row an update moves to another page meanwhile. No row of a
// key moves while all its requests are refused, unless its window counts them.
func (db *DB) Exact(ctx context.Context, limiter string, keys int, timeout time.Duration, report func(rows int64, done float64)) (Reading, error) {
	x := exact{db: db, limiter: limiter, keys: keys, timeout: timeout, report: report, reading: Reading{All: true}}
	var distributed []Kind
	if db.Dialect == migrations.Postgres {
		var err error
		if distributed, err = db.distributed(ctx); err != nil {
			return Reading{}, db.Explain(err)
		}
	}
	byKey := func(k Kind) bool { return db.Dialect == migrations.SQLite || slices.Contains(distributed, k) }
	ends := map[Kind]int64{}
	for _, k := range Kinds() {
		var err error
		if byKey(k) {
			ends[k] = db.CountRows(ctx, limiter, k)
		} else if ends[k], err = x.size(ctx, k); err != nil {
			return Reading{}, err
		}
		x.progress.Total += ends[k]
	}
	for _, k := range Kinds() {
		var err error
		if byKey(k) {
			err = x.rows(ctx, k)
		} else {
			err = x.pages(ctx, k, ends[k])
		}
		if err != nil {
			return Reading{}, err
		}
	}
	x.reading.Total = x.reading.Rows
	x.reading.Limiters = []Usages{{limiter, x.best}}
	if len(x.best) == 0 {
		known, err := db.Known(ctx, limiter)
		if err != nil {
			return Reading{}, err
		}
		x.reading.Known = known.Limiters
	}
	return x.reading, nil
}

// size returns how many pages a table has.
func (x *exact) size(ctx context.Context, k Kind) (pages int64, err error) {
	err = x.db.pool.QueryRow(ctx, "SELECT pg_catalog.pg_relation_size($1::text::regclass) / pg_catalog.current_setting('block_size')::bigint",
		x.db.text("@"+k.Table())).Scan(&pages)
	return pages, x.db.Explain(err)
}

// pages reads a table of PostgreSQL by ranges of pages. The size of the ranges follows the time that
// statements take.
func (x *exact) pages(ctx context.Context, k Kind, end int64) error {
	from := "(SELECT * FROM @" + k.Table() + " WHERE ctid >= $2::text::tid AND ctid < $3::text::tid AND limiter = $1) AS part"
	pages := int64(leastPages)
	for at, grown := int64(0), false; ; {
		if at >= end && grown {
			return nil
		}
		if at >= end { // look once for pages that were added meanwhile
			grown = true
			size, err := x.size(ctx, k)
			if err != nil {
				return err
			}
			x.progress.Total += size - end
			end = size
			continue
		}
		took, _, err := x.read(ctx, k, from, x.limiter, tid(at), tid(at+pages))
		if err != nil {
			return err
		}
		x.progress.Visited += min(pages, end-at)
		at += pages
		if err := x.rest(ctx, took); err != nil {
			return err
		}
		pages = min(max(leastPages, pages*int64(exactTime)/max(1, int64(took))), 2*pages, mostPages)
	}
}

func tid(page int64) string { return fmt.Sprintf("(%d,0)", page) }

// rows reads the rows of the limiter in the order of their keys. In SQLite that is how they are stored.
func (x *exact) rows(ctx context.Context, k Kind) error {
	w := walk{kind: k, limiter: x.limiter, after: []byte{}}
	for {
		took, n, err := x.read(ctx, k, k.chunk(), w.args(exactRows)...)
		if err != nil {
			return err
		}
		x.progress.Visited += n
		if err := w.next(ctx, x.db, exactRows); err != nil {
			return err
		}
		if len(w.after) == 0 { // at the end
			return nil
		}
		if err := x.rest(ctx, took); err != nil {
			return err
		}
	}
}

// read reads a FROM item and keeps its best rows. It returns how long that took, and how many rows
// there were.
func (x *exact) read(ctx context.Context, k Kind, from string, args ...any) (took time.Duration, n int64, err error) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, x.timeout)
	defer cancel()
	rows, n, err := (&Top{db: x.db, keys: x.keys}).bestOf(bounded, k, from, args...)
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	for _, row := range rows {
		if u, ok := row.usage(ctx); ok {
			x.best = append(x.best, u)
		}
	}
	x.best = rank(x.best, x.keys)
	x.reading.Rows += n
	return took, n, nil
}

// rest reports the progress, and waits as long as the last statement took.
func (x *exact) rest(ctx context.Context, took time.Duration) error {
	x.report(x.reading.Rows, x.progress.Share())
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
