package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter"
)

// allText renders the statement of a decision over so many buckets and windows: see sql/all.sql.
func (o *options) allText(counts [2]int) string {
	lists := map[string][]string{}
	n, after := 0, "gate"
	for i, t := range []*table{&buckets, &windows} {
		if counts[i] == 0 {
			continue
		}
		sections := o.sections("all_" + t.kind)
		rows := map[string][]string{}
		for range counts[i] {
			n++
			row := ofRow(n)
			for _, name := range []string{"seen", "fits", "held", "room", "row"} {
				lists[name] = append(lists[name], row.Replace(sections[name]))
			}
			for _, name := range []string{"new", "cost"} {
				rows[name] = append(rows[name], row.Replace(sections[name]))
			}
		}
		ofTable := strings.NewReplacer("/* new */", strings.Join(rows["new"], ", "), "/* cost */", strings.Join(rows["cost"], ", "), "{after}", after)
		for _, name := range []string{"added", "taken"} {
			lists[name] = append(lists[name], ofTable.Replace(sections[name]))
		}
		after = "added_" + t.kind + "s"
	}
	pairs := []string{"{last}", fmt.Sprint(n), "/* room */", strings.Join(lists["room"], " AND ")}
	for _, name := range []string{"seen", "fits", "added", "held", "taken", "row"} {
		pairs = append(pairs, "/* "+name+" */", strings.Join(lists[name], ", "))
	}
	return o.text("all", pairs...)
}

// rowParameters is how many parameters a row has, and firstParameter is how many come before.
const (
	firstParameter = 1
	rowParameters  = 6
)

// ofRow returns what fills a section for the row n, counted from 1.
func ofRow(n int) *strings.Replacer {
	pairs := []string{"{i}", fmt.Sprint(n), "{before}", fmt.Sprint(n - 1)}
	for i, name := range []string{"$limiter", "$key", "$period", "$limit", "$cost", "$more"} {
		pairs = append(pairs, name, fmt.Sprint("$", firstParameter+(n-1)*rowParameters+i+1))
	}
	return strings.NewReplacer(pairs...)
}

// sections returns the rendered sections of a file.
func (o *options) sections(file string) map[string]string {
	sections := map[string]string{}
	for _, section := range strings.Split(readFile(file), "-- section: ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = o.render(text)
	}
	return sections
}

// allStatement returns the statement for takes from these tables, which it renders once.
func (s *Store) allStatement(tables []*table) string {
	var counts [2]int
	for _, t := range tables {
		if t == s.buckets {
			counts[0]++
		} else {
			counts[1]++
		}
	}
	if text, ok := s.allTexts.Load(counts); ok {
		return text.(string)
	}
	text, _ := s.allTexts.LoadOrStore(counts, s.allText(counts))
	return text.(string)
}

// rowsRead is the rows of a decision over several limits, and the clock. Missing rows are zero.
type rowsRead struct {
	rows    []limiter.Row
	missing bool // one of them at least, and all takes have room
	added   bool // the statement has added what was missing
	now     int64
}

// apply is [limiter.ApplyAll] on the rows that were read. It also reports whether all takes have room.
func (r *rowsRead) apply(ops []limiter.Op) (next []limiter.Row, states []limiter.State, room bool) {
	next, states = limiter.ApplyAll(ops, r.rows, r.now)
	room = true
	for i := range states {
		states[i].Tick = tickOf(&ops[i])
		room = room && states[i].Took
	}
	return next, states, room
}

// takeAll sends the statement of a decision over several limits. It decides if it took all, or if
// a row that it read or locked refuses and would not change. The rows were read or locked at the time
// of the clock, so [limiter.ApplyAll] returns the states.
func (s *Store) takeAll(ctx context.Context, db DB, tables []*table, ops []limiter.Op) (r rowsRead, states []limiter.State, decided bool, err error) {
	n := len(tables)
	names, keys, numbers := make([]textArg, n), make([]byteaArg, n), make([]int8Arg, 4*n)
	args := make([]any, 0, firstParameter+rowParameters*n)
	args = append(args, at(&ops[0]))
	arrays := make([][]int64, n)
	took := false
	dest := append(make([]any, 0, 3+n), &r.now, &took, &r.added)
	for i, t := range tables {
		op := &ops[i]
		names[i], keys[i] = textArg(op.Name), byteaArg(op.Key)
		args = append(args, &names[i], &keys[i])
		period, limit, cost := t.numbers(op)
		_, more := t.takeStatement(&t.sql, op)
		for j, number := range []int64{period, limit, cost, more[0]} {
			place := &numbers[4*i+j]
			*place = int8Arg(number)
			args = append(args, place)
		}
		dest = append(dest, &arrays[i])
	}
	if _, err := s.scanRow(ctx, db, s.allStatement(tables), args, dest...); err != nil {
		return r, nil, false, err
	}
	r.rows = make([]limiter.Row, n)
	for i, t := range tables {
		r.missing = r.missing || arrays[i] == nil
		for j, field := range t.fields(nil, &r.rows[i]) {
			if arrays[i] != nil {
				*field.(*int64) = arrays[i][j]
			}
		}
	}
	next, states, room := r.apply(ops)
	r.missing = r.missing && room // a refusal needs no row
	return r, states, took || !room && !changed(r.rows, next), nil
}
