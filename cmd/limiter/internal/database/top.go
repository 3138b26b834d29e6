package database

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlimit/limiter/migrations"
)

// Top finds the keys that use most of their limits. It is not safe for concurrent use. Each [Top.Read]
// reads only a part of a large table, and Top remembers the best keys of earlier parts.
type Top struct {
	db      *DB
	limiter string // empty for all
	keys    int    // to keep for each limiter

	walks map[place]*walk
	best  map[string][]Usage
}

type place struct {
	kind    Kind
	limiter string
}

// Usage is a key and what it uses.
type Usage struct {
	Row
	State
}

// Share is the used part of the limit: 1 is all of it.
func (u Usage) Share() float64 { return float64(u.Used) / float64(max(1, u.Limit)) }

// Reading is what [Top.Read] found.
type Reading struct {
	Limiters []Usages
	Rows     int64 // how many were read now
	All      bool  // the tables have no other rows
}

// Usages are the keys of a limiter that use most of their limits, highest first.
type Usages struct {
	Limiter string
	Keys    []Usage
}

// NewTop returns a Top for the limiter of this name, or for all limiters if name is empty. It keeps at
// most the given number of keys for each limiter.
func NewTop(db *DB, name string, keys int) *Top {
	return &Top{db: db, limiter: name, keys: keys, walks: map[place]*walk{}, best: map[string][]Usage{}}
}

// maxWalks is how many limiters of large tables one Read looks at.
const maxWalks = 50

// Read reads all rows of small tables and a sample of large ones. It reads the best keys of earlier
// calls again, by their primary keys.
func (t *Top) Read(ctx context.Context) (Reading, error) {
	names := []string{t.limiter}
	if t.limiter == "" {
		var err error
		if names, err = t.db.Limiters(ctx, MaxLimiters); err != nil {
			return Reading{}, err
		}
	}
	r := Reading{All: true}
	found := map[string]Row{} // by table, limiter and key
	for _, k := range Kinds() {
		if err := t.reread(ctx, k, found); err != nil {
			return r, err
		}
		rows, n, all, err := t.table(ctx, k, names)
		if err != nil {
			return r, err
		}
		for _, row := range rows {
			found[row.id()] = row
		}
		r.Rows += n
		r.All = r.All && all
	}
	t.best = map[string][]Usage{}
	for _, row := range found {
		s, err := row.Look(ctx)
		if err == nil && s.Used > 0 { // after an error the numbers mean nothing: no policy writes such a row
			t.best[row.Limiter] = append(t.best[row.Limiter], Usage{row, s})
		}
	}
	for _, name := range names {
		best := t.best[name]
		slices.SortFunc(best, func(a, b Usage) int {
			return cmp.Or(cmp.Compare(b.Share(), a.Share()), cmp.Compare(b.Used, a.Used), strings.Compare(a.id(), b.id()))
		})
		t.best[name] = best[:min(len(best), t.keys)]
		r.Limiters = append(r.Limiters, Usages{name, t.best[name]})
	}
	return r, nil
}

func (r Row) id() string { return string(r.Kind) + "\x00" + r.Limiter + "\x00" + string(r.Key) }

// reread reads the best keys of earlier calls again.
func (t *Top) reread(ctx context.Context, k Kind, found map[string]Row) error {
	for name, best := range t.best {
		keys, marks := []any{name}, []string(nil)
		for _, u := range best {
			if u.Kind == k {
				keys = append(keys, u.Key)
				marks = append(marks, "$"+strconv.Itoa(len(keys)))
			}
		}
		if len(keys) == 1 {
			continue
		}
		rows, err := t.db.query(ctx, k, "SELECT "+k.columns()+", "+t.db.now()+" FROM @"+k.Table()+
			" WHERE limiter = $1 AND key IN ("+strings.Join(marks, ", ")+")", keys...)
		if err != nil {
			return err
		}
		for _, row := range rows {
			found[row.id()] = row
		}
	}
	return nil
}

// table returns the best rows of a part of a table, how many rows it read, and whether they are all.
func (t *Top) table(ctx context.Context, k Kind, names []string) (rows []Row, n int64, all bool, err error) {
	if t.db.Dialect == migrations.Postgres {
		from, share, err := t.db.sample(ctx, k)
		if err != nil {
			return nil, 0, false, err
		}
		where := ""
		var args []any
		if t.limiter != "" {
			where, args = " WHERE limiter = $1", []any{t.limiter}
		}
		if rows, n, err = t.bestOf(ctx, k, from+where, args...); err != nil || share >= 1 {
			return rows, n, true, err
		}
	}
	// Read a chunk of each limiter, so that a limiter with few keys does not disappear beside one with many.
	all = t.db.Dialect == migrations.SQLite && len(names) <= maxWalks
	names = names[:min(len(names), maxWalks)]
	rowsOfAll := chunkRows
	if t.db.Dialect == migrations.Postgres {
		rowsOfAll = chunkRowsPostgres
	}
	each := int64(max(1, rowsOfAll/max(1, len(names))))
	for _, name := range names {
		at := place{k, name}
		if t.walks[at] == nil {
			t.walks[at] = &walk{kind: k, limiter: name}
		}
		w := t.walks[at]
		complete, err := w.begin(ctx, t.db, each)
		if err != nil {
			return nil, 0, false, err
		}
		more, read, err := t.bestOf(ctx, k, k.chunk(), w.args(each)...)
		if err == nil {
			err = w.next(ctx, t.db, each)
		}
		if err != nil {
			return nil, 0, false, err
		}
		w.begun = !complete // begin again next time, because a limiter may grow
		rows, n, all = append(rows, more...), n+read, all && complete
	}
	return rows, n, all, nil
}

// bestOf returns the rows of a FROM item that use most, for each limiter, and how many rows it has.
func (t *Top) bestOf(ctx context.Context, k Kind, from string, args ...any) ([]Row, int64, error) {
	statement := `SELECT ` + k.columns() + `, total, ` + t.db.now() + ` FROM (
		SELECT part.*, row_number() OVER (PARTITION BY limiter ORDER BY ` + tables[k].Share(t.db.Dialect, t.db.now()) + ` DESC) AS place, count(*) OVER () AS total
		FROM ` + from + `) AS ranked WHERE place <= ` + strconv.Itoa(t.keys)
	rows, err := t.db.SQL.QueryContext(ctx, t.db.text(statement), args...)
	if err != nil {
		return nil, 0, t.db.explain(err)
	}
	defer rows.Close()
	var found []Row
	var n int64
	for rows.Next() {
		r, err := t.db.scan(rows, k, &n)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, r)
	}
	return found, n, t.db.explain(rows.Err())
}
