// Package generate makes mutants of Go packages: small changes that tests should notice. All mutants
// are compiled into the packages together, and an environment variable chooses some at run time.
package generate

import (
	"context"
	"fmt"
	"go/ast"
	"go/types"
	"strings"
)

// Mutant is one change of the code.
type Mutant struct {
	ID       int    // chooses it at run time, from 1; the same code always has the same ids
	Site     int    // the place in the code, which can be recorded as reached
	Dir      string // of the package, from the root of the repository
	File     string // from the root of the repository
	Func     string // the function, with its receiver; "" in a variable or an SQL text
	Operator string
	Before   string
	After    string
	Ordinal  int // counts mutants that are otherwise the same
	from, to int // the bytes of File that it replaces
}

// Overlaps reports whether two mutants replace the same text, so that one of them has no effect beside the other.
func (m *Mutant) Overlaps(o *Mutant) bool { return m.File == o.File && m.from < o.to && o.from < m.to }

// Identity tells mutants apart without line numbers, so that two trees can be compared.
func (m *Mutant) Identity() string {
	return strings.Join([]string{m.File, m.Func, m.Operator, m.Before, m.After, fmt.Sprint(m.Ordinal)}, "\t")
}

// Result is what [Packages] makes.
type Result struct {
	Mutants []*Mutant
	Sites   int               // one more than the last site
	Files   map[string]string // the generated files by the path that they replace or add
	last    int               // id
}

func (r *Result) add(m *Mutant, dir string, site int) {
	r.last++
	m.ID, m.Site, m.Dir = r.last, site, dir
	r.Mutants = append(r.Mutants, m)
}

// Packages makes the mutants of packages, which are directories from the root of the repository.
func Packages(ctx context.Context, root string, dirs []string) (*Result, error) {
	loaded, err := load(ctx, root, dirs)
	if err != nil {
		return nil, err
	}
	r := &Result{Sites: 1, Files: map[string]string{}}
	for _, p := range loaded {
		p.find()
		if err := p.write(r); err != nil {
			return nil, fmt.Errorf("%s: %w", p.dir, err)
		}
	}
	seen := map[string]int{}
	for _, m := range r.Mutants { // in the order of the code
		same := m.Identity()
		seen[same]++
		m.Ordinal = seen[same]
	}
	return r, nil
}

// site is a place in the code that mutants replace: an expression or a statement.
type site struct {
	id   int
	typ  string // of an expression; "" for a statement
	alts []alternative
	as   string // replaces the expression in any case
	call string // a function that gets its value
}

// alternative is the text that a mutant puts at a site. A mutant that swaps two arguments has two
// sites.
type alternative struct {
	mutant *Mutant
	text   string
}

// scope is where the search for mutants is: the file, the function and the parents of a node.
type scope struct {
	*pkg
	file   *file
	fn     string
	result *types.Signature // of the function; nil in a variable
	stack  []ast.Node       // the parents, the nearest last
}

func (s *scope) parent(n int) ast.Node {
	if i := len(s.stack) - 1 - n; i >= 0 {
		return s.stack[i]
	}
	return nil
}

func (s *scope) text(n ast.Node) string { return s.source(s.file, n) }

// shortest is the length of a text that says enough by itself. A shorter one is shown in its
// expression.
const shortest = 12

func (s *scope) mutant(operator string, n ast.Node, after string) *Mutant {
	before := s.text(n)
	if around, ok := s.parent(0).(ast.Expr); ok && len(before) < shortest && around.Pos() <= n.Pos() && around.End() >= n.End() {
		if _, literal := around.(*ast.FuncLit); !literal {
			at := int(n.Pos() - around.Pos())
			whole := s.text(around)
			before, after = whole, whole[:at]+after+whole[at+int(n.End()-n.Pos()):]
		}
	}
	return s.named(operator, before, after)
}

// named makes a mutant that is described by two texts.
func (s *scope) named(operator, before, after string) *Mutant {
	before, after = describe(before, after)
	return &Mutant{File: s.file.name, Func: s.fn, Operator: operator, Before: before, After: after}
}

// longest is how much of a text an identity has, and around is how much of it is before a change.
const (
	longest = 160
	around  = 60
)

// describe returns two texts on one line each. Of long ones it leaves what is around the difference.
func describe(before, after string) (string, string) {
	before, after = strings.Join(strings.Fields(before), " "), strings.Join(strings.Fields(after), " ")
	if len(before) <= longest && len(after) <= longest {
		return before, after
	}
	same := 0
	for same < min(len(before), len(after)) && before[same] == after[same] {
		same++
	}
	cut := func(text string) string {
		if same > around {
			text = "…" + strings.ToValidUTF8(text[same-around:], "")
		}
		if len(text) > longest {
			text = strings.ToValidUTF8(text[:longest], "") + "…"
		}
		return text
	}
	return cut(before), cut(after)
}

func (s *scope) expr(operator string, e ast.Expr, after string) {
	if typ := s.typeOf(e); typ != "" {
		s.at(e, typ, alternative{mutant: s.mutant(operator, e, after), text: after})
	}
}

func (s *scope) at(n ast.Node, typ string, a alternative) {
	place := s.site(n)
	place.typ = typ
	place.alts = append(place.alts, a)
}

func (s *scope) site(n ast.Node) *site {
	if s.file.sites[n] == nil {
		s.file.sites[n] = &site{}
	}
	return s.file.sites[n]
}

// typeOf returns the type of an expression as this file can write it. If it cannot, the text does
// not compile, so that the mutants of the expression are left out.
func (s *scope) typeOf(e ast.Expr) string {
	tv, ok := s.info.Types[e]
	if !ok || tv.Type == nil || tv.IsType() || tv.IsVoid() || tv.IsBuiltin() {
		return ""
	}
	return s.typeText(types.Default(tv.Type))
}

func (s *scope) typeText(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == s.types {
			return ""
		}
		if name := s.file.names[p.Path()]; name != "" {
			return name
		}
		return "notImported" + p.Name()
	})
}
