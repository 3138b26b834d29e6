package migrations

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// layout is what a database holds: each object with its definition. An object's
// definition is text from the catalog, and may be empty.
type layout map[object]string

// object is a table, a view, or a part of one. Two objects are the same if their
// fields are.
type object struct {
	root string // the table or view that the object is or belongs to
	kind string // what it is, as DROP and ALTER call it
	name string // root, or what the part is called
}

// Kinds of objects that the comparison knows.
const (
	kindTable      = "table"
	kindColumn     = "column"
	kindConstraint = "constraint"
	kindView       = "view"
	kindParameter  = "storage parameter"
)

// isRoot reports whether the object is a table or view itself.
func (o object) isRoot() bool { return o.name == o.root }

// String names the object as an operator would look for it.
func (o object) String() string {
	if o.kind == kindColumn || o.kind == kindConstraint || o.kind == kindParameter {
		return o.kind + " " + o.root + "." + o.name
	}
	return o.kind + " " + o.name
}

// only returns the part of l that has the given roots.
func (l layout) only(roots map[string]bool) layout {
	part := maps.Clone(l)
	maps.DeleteFunc(part, func(o object, _ string) bool { return !roots[o.root] })
	return part
}

// difference is one object that is missing, superfluous, or defined otherwise.
type difference struct {
	object
	got, want       string // definitions
	present, wanted bool
}

// String says what is wrong, and what would be right.
func (d difference) String() string {
	switch {
	case !d.wanted:
		return d.object.String() + " must not exist"
	case d.isRoot() && !d.present:
		return d.object.String() + " is missing"
	case !d.present:
		return fmt.Sprintf("%s is missing (want %s)", d.object, d.want)
	case d.kind == kindView:
		return d.object.String() + " has another definition"
	default:
		return fmt.Sprintf("%s is %s (want %s)", d.object, d.got, d.want)
	}
}

// diff returns the differences between two layouts that counts accepts.
func diff(got, want layout, counts func(difference) bool) []difference {
	var list []difference
	replaced := map[string]bool{} // roots that are missing or must not exist
	add := func(d difference) {
		if d.isRoot() && d.present != d.wanted {
			replaced[d.root] = true
		}
		if counts(d) {
			list = append(list, d)
		}
	}
	for o, definition := range want {
		if found, ok := got[o]; !ok || found != definition {
			add(difference{object: o, got: found, want: definition, present: ok, wanted: true})
		}
	}
	for o, definition := range got {
		if _, ok := want[o]; !ok {
			add(difference{object: o, got: definition, present: true})
		}
	}
	list = slices.DeleteFunc(list, func(d difference) bool { return replaced[d.root] && !d.isRoot() })
	slices.SortFunc(list, func(a, b difference) int {
		return cmp.Or(cmp.Compare(a.root, b.root), cmp.Compare(b.kind, a.kind), cmp.Compare(a.name, b.name))
	})
	return list
}

// exactly accepts every difference, except a storage parameter that the
// migrations leave alone.
func exactly(d difference) bool { return d.wanted || d.kind != kindParameter }

// needed accepts what keeps the statements of the stores from working. An
// operator may change the rest of a schema whose version is recorded.
func needed(d difference) bool {
	switch d.kind {
	case kindTable:
		return !d.present
	case kindColumn: // of a further column, no store gives a value
		got := strings.ToLower(d.got)
		return d.wanted || strings.Contains(got, "not null") && !strings.Contains(got, " default ") && !strings.Contains(got, " generated ")
	case kindConstraint:
		return d.wanted && strings.HasPrefix(strings.ToLower(d.want), "primary key")
	}
	return false
}

// lost accepts tables and columns that are missing. A newer release may have
// changed all else.
func lost(d difference) bool {
	return !d.present && (d.kind == kindTable || d.kind == kindColumn)
}

// join lists differences in a sentence.
func join(list []difference) string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}

// drops returns the statements that remove all tables and views of l, in an
// order in which none depends on a later one.
func (l layout) drops(qualify func(name string) string) string {
	afterViews := func(o object) int {
		if strings.HasSuffix(o.kind, kindView) {
			return 0
		}
		return 1
	}
	var roots []object
	for o := range l {
		if o.isRoot() {
			roots = append(roots, o)
		}
	}
	slices.SortFunc(roots, func(a, b object) int {
		return cmp.Or(cmp.Compare(afterViews(a), afterViews(b)), cmp.Compare(a.name, b.name))
	})
	statements := make([]string, len(roots))
	for i, o := range roots {
		statements[i] = fmt.Sprintf("DROP %s %s", strings.ToUpper(o.kind), qualify(o.name))
	}
	return strings.Join(statements, "; ")
}
