package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sqlimit/limiter"
)

// allText renders the statement of a decision over rows of these tables, which come in the order of
// their kinds. It waits for the lock of row first, if there is one: see sql/all.sql.
func (r rendering) allText(tables []*table, first int) string {
	order := lockOrder(len(tables), first)
	before, rank := make([]int, len(order)), make([]int, len(order))
	last := 0
	for i, n := range order {
		before[n], rank[n], last = last, i, n+1
	}
	lists := map[string][]string{"held": make([]string, len(order)), "found": make([]string, len(order))}
	after, parameters := "gate", firstParameter
	for n := 0; n < len(tables); {
		t := tables[n]
		rows := map[string][]string{}
		for ; n < len(tables) && tables[n] == t; n++ {
			skip := r.skipLocked()
			if n == first {
				skip = ""
			}
			row := ofRow(n+1, before[n], skip, parameters)
			parameters += t.parameters()
			for _, name := range []string{"seen", "fits", "room", "row"} {
				lists[name] = append(lists[name], row.Replace(t.sql.all[name]))
			}
			for _, name := range []string{"held", "found"} { // WITH names only what comes before
				lists[name][rank[n]] = row.Replace(t.sql.all[name])
			}
			for _, name := range []string{"new", "cost"} {
				rows[name] = append(rows[name], row.Replace(t.sql.all[name]))
			}
		}
		ofTable := strings.NewReplacer("/* new */", strings.Join(rows["new"], ", "), "/* cost */", strings.Join(rows["cost"], ", "), "{after}", after)
		for _, name := range []string{"added", "taken"} {
			lists[name] = append(lists[name], ofTable.Replace(t.sql.all[name]))
		}
		after = "added_" + t.Prefix + "s"
	}
	pairs := []string{"{last}", fmt.Sprint(last), "/* room */", strings.Join(lists["room"], " AND ")}
	for _, name := range []string{"seen", "fits", "added", "held", "found", "taken", "row"} {
		pairs = append(pairs, "/* "+name+" */", strings.Join(lists[name], ", "))
	}
	return r.text("all", pairs...)
}

// rowParameters are the parameters of a row. firstParameter is how many come before those of the rows.
const firstParameter = 1

var rowParameters = []string{"$limiter", "$key", "$period", "$limit", "$cost", "$more", "$start"}

// parameters returns how many parameters a row of t has: only those of a calendar have a start.
func (t *table) parameters() int {
	if t.calendar {
		return len(rowParameters)
	}
	return len(rowParameters) - 1
}

// ofRow returns the replacer that fills a section for row n, counted from 1. The statement has that many
// parameters before those of this row.
func ofRow(n, before int, skip string, parameters int) *strings.Replacer {
	pairs := []string{"{i}", fmt.Sprint(n), "{before}", fmt.Sprint(before), "/* skip */", skip}
	for i, name := range rowParameters {
		pairs = append(pairs, name, fmt.Sprint("$", parameters+i+1))
	}
	return strings.NewReplacer(pairs...)
}

// sections returns the rendered sections of a file, nil if there is no such file. Those for a calendar decide
// for each row which of the branches it needs.
func (r rendering) sections(file string, calendar bool) map[string]string {
	var sections map[string]string
	for _, section := range strings.Split(readFile(file), "-- section: ")[1:] {
		if sections == nil {
			sections = map[string]string{}
		}
		name, text, _ := strings.Cut(section, "\n")
		if calendar {
			start := "$start::bigint"
			if name == "taken" {
				start = "a.start"
			}
			text = eitherBranch(text, start)
		}
		sections[name] = r.render(oneBranch(text, calendar))
	}
	return sections
}

// allKey identifies the statement of a decision over several limits: the kinds of its rows, and which
// one it locks first.
type allKey struct {
	rendering
	kinds    [limiter.MaxClaims]limiter.PolicyKind
	calendar bool
	first    int
}

// allStatement returns the statement for takes from these tables, which it renders once. It reports
// false if [allDecision.settle] must decide: on Citus, and if a kind has no such statement.
func (s *Store) allStatement(tables []*table, first int) (string, bool) {
	key := allKey{rendering: s.rendering, first: first}
	for i, t := range tables {
		if s.citus || t.sql.all == nil {
			return "", false
		}
		key.kinds[i] = t.Kind
		key.calendar = key.calendar || t.calendar
	}
	if text, ok := s.allTexts.Load(key); ok {
		return text.(string), true
	}
	text := once(key, func() string { return s.allText(tables, first) })
	text = s.inSchema(text)
	s.allTexts.Store(key, text)
	return text, true
}

// lockOrder returns the order in which n rows are locked.
func lockOrder(n, first int) (order []int) {
	if first != noRow {
		order = append(order, first)
	}
	for i := range n {
		if i != first {
			order = append(order, i)
		}
	}
	return order
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

// byStatement sends the statement of the decision. It decides if it took all, or if a row that it read or
// locked refuses and would not change. The rows were read or locked at the time of the clock, so
// [limiter.ApplyAll] returns the states. The statement waits for the lock of row first only.
func (d *allDecision) byStatement(ctx context.Context, db DB, text string) (r rowsRead, decided bool, err error) {
	n := len(d.ops)
	names, keys, numbers := make([]textArg, n), make([]byteaArg, n), make([]int8Arg, 5*n)
	args := make([]any, 0, firstParameter+len(rowParameters)*n+1)
	args = append(args, at(&d.ops[0]))
	arrays := make([][]int64, n)
	took := false
	var found []bool
	dest := append(make([]any, 0, 4+n), &r.now, &took, &r.added, &found)
	for i, t := range d.tables {
		op := &d.ops[i]
		names[i], keys[i] = textArg(op.Name), byteaArg(op.Key)
		args = append(args, &names[i], &keys[i])
		own := d.tableOf(op.Policy)
		of := d.numbers(own, op)
		_, more := t.take(&t.sql, op, of)
		if !own.calendar {
			of.Start = -1
		}
		for j, number := range []int64{of.Period, of.Limit, of.Cost, more[0], of.Start}[:t.parameters()-2] {
			place := &numbers[5*i+j]
			*place = int8Arg(number)
			args = append(args, place)
		}
		dest = append(dest, &arrays[i])
	}
	sts := append(d.keyLocks(ctx), statement{sql: text, args: d.bounded(ctx, args, 0), dest: dest})
	if err := d.sendTogether(ctx, db, sts); err != nil {
		return r, false, err
	}
	if i := slices.Index(found, false); i >= 0 {
		d.locked = lockOrder(n, d.first)[i]
	}
	r.rows = make([]limiter.Row, n)
	for i, t := range d.tables {
		r.missing = r.missing || arrays[i] == nil
		for j, field := range t.fields(nil, &r.rows[i]) {
			if arrays[i] != nil {
				*field.(*int64) = arrays[i][j]
			}
		}
	}
	next, states, room := r.apply(d.ops)
	r.missing = r.missing && room // a refusal needs no row
	if decided = took || !room && slices.Equal(r.rows, next); decided {
		d.states = states
	}
	return r, decided, nil
}
