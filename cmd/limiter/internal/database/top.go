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

	walks   map[place]*walk
	best    map[string][]Usage
	turn    int // how many limiters of large tables were read before
	rows    int64
	counted bool // rows is known, or cannot be counted
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
	Rows     int64    // how many were read now
	Total    int64    // about how many the tables have; 0 if that is not known
	All      bool     // the tables have no other rows
	Known    []string // the first limiters, if the wanted one has no row
}

// Share returns the share of the rows that was read, or 0 if that is not known.
func (r Reading) Share() float64 { return Progress{Visited: r.Rows, Total: r.Total}.Share() }

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
		part, err := t.table(ctx, k, names)
		if err != nil {
			return r, err
		}
		for _, row := range part.rows {
			found[row.id()] = row
		}
		r.Rows += part.read
		r.Total += part.total
		r.All = r.All && part.all
	}
	t.turn += maxWalks
	t.best = map[string][]Usage{}
	for _, name := range names {
		t.best[name] = nil // also without a key in use
	}
	for _, row := range found {
		if u, ok := row.usage(ctx); ok {
			t.best[row.Limiter] = append(t.best[row.Limiter], u)
		}
	}
	for name, best := range t.best {
		t.best[name] = rank(best, t.keys)
		r.Limiters = append(r.Limiters, Usages{name, t.best[name]})
	}
	slices.SortFunc(r.Limiters, compare)
	if err := t.known(ctx, &r); err != nil {
		return r, err
	}
	return r, nil
}

// known completes a reading with what it does not need to know each time.
func (t *Top) known(ctx context.Context, r *Reading) error {
	if t.limiter != "" && len(t.best[t.limiter]) == 0 {
		known, err := t.db.Known(ctx, t.limiter)
		if err != nil {
			return err
		}
		r.Known = known.Limiters
	}
	if r.All {
		r.Total = r.Rows
	} else if t.db.Dialect == migrations.SQLite {
		if !t.counted {
			t.rows, t.counted = t.db.CountRows(ctx, t.limiter, Kinds()...), true
		}
		r.Total = t.rows
	}
	return nil
}

// usage returns what the key of the row uses. It reports false if that is nothing.
func (r Row) usage(ctx context.Context) (Usage, bool) {
	s, err := r.Look(ctx)
	return Usage{r, s}, err == nil && s.Used > 0 // after an error the numbers mean nothing: no policy writes such a row
}

// rank returns the keys that use most, highest first.
func rank(all []Usage, keys int) []Usage {
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.Share(), a.Share()), cmp.Compare(b.Used, a.Used), strings.Compare(a.id(), b.id()))
	})
	return all[:min(len(all), keys)]
}

// compare orders limiters by their fullest keys.
func compare(a, b Usages) int {
	fullest := func(u Usages) float64 {
		if len(u.Keys) == 0 {
			return 0
		}
		return u.Keys[0].Share()
	}
	return cmp.Or(cmp.Compare(fullest(b), fullest(a)), strings.Compare(a.Limiter, b.Limiter))
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

// part is what a reading found in one table.
type part struct {
	rows        []Row // the best ones
	read, total int64 // rows; total is estimated, and 0 if it is not known
	all         bool  // the table has no other rows
}

// table reads a part of a table.
func (t *Top) table(ctx context.Context, k Kind, names []string) (p part, err error) {
	if t.db.Dialect == migrations.Postgres {
		from, share, err := t.db.sample(ctx, k)
		if err != nil {
			return p, err
		}
		where := ""
		var args []any
		if t.limiter != "" {
			where, args = " WHERE limiter = $1", []any{t.limiter}
		}
		p.rows, p.read, err = t.bestOf(ctx, k, from+where, args...)
		p.total, p.all = int64(float64(p.read)/share), share >= 1
		if err != nil || p.all {
			return p, err
		}
	}
	// Read a chunk of each limiter, so that a limiter with few keys does not disappear beside one with many.
	p.all = t.db.Dialect == migrations.SQLite && len(names) <= maxWalks
	if len(names) > maxWalks { // the others have their turn in the next readings
		next := t.turn % len(names)
		names = slices.Concat(names[next:], names[:next])[:maxWalks]
	}
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
			return p, err
		}
		more, read, err := t.bestOf(ctx, k, k.chunk(), w.args(each)...)
		if err == nil {
			err = w.next(ctx, t.db, each)
		}
		if err != nil {
			return p, err
		}
		w.begun = !complete // begin again next time, because a limiter may grow
		p.rows, p.read, p.all = append(p.rows, more...), p.read+read, p.all && complete
	}
	p.total = max(p.total, p.read)
	return p, nil
}

// bestOf returns the rows of a FROM item that use most, for each limiter, and how many rows it has.
func (t *Top) bestOf(ctx context.Context, k Kind, from string, args ...any) ([]Row, int64, error) {
	statement := `SELECT ` + k.columns() + `, total, ` + t.db.now() + ` FROM (
		SELECT part.*, row_number() OVER (PARTITION BY limiter ORDER BY ` + tables[k].Share(t.db.Dialect, t.db.now()) + ` DESC) AS place, count(*) OVER () AS total
		FROM ` + from + `) AS ranked WHERE place <= ` + strconv.Itoa(t.keys)
	rows, err := t.db.SQL.QueryContext(ctx, t.db.text(statement), args...)
	if err != nil {
		return nil, 0, t.db.Explain(err)
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
	return found, n, t.db.Explain(rows.Err())
}
