package generate

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// write adds the mutants of a package to r: it writes the package with all of them, checks it, and
// leaves out those that do not compile.
func (p *pkg) write(r *Result) error {
	for _, f := range p.files {
		for _, st := range f.ordered() {
			s := f.sites[st]
			s.id = r.Sites
			r.Sites++
			for _, a := range s.alts {
				if a.mutant.ID == 0 {
					r.add(a.mutant, p.dir, s.id)
					a.mutant.from = p.fset.Position(st.Pos()).Offset
				}
				a.mutant.to = p.fset.Position(st.End()).Offset
			}
		}
	}
	for _, e := range p.embeds {
		e.site = r.Sites
		r.Sites++
		for _, ed := range e.edits {
			r.add(ed.mutant, p.dir, e.site)
			ed.mutant.from, ed.mutant.to = ed.from, ed.to
		}
	}
	bad := map[int]bool{}
	for {
		texts := map[string]string{}
		for _, f := range p.files {
			texts[f.name] = p.splice(f, f.ast, bad, 0, len(f.text))
		}
		texts[filepath.Join(p.dir, helperFile)] = helper(p.types.Name())
		if len(p.embeds) > 0 {
			texts[filepath.Join(p.dir, textFile)] = p.texts()
		}
		more, err := p.check(texts)
		if err != nil {
			return err
		}
		if len(more) == 0 {
			maps.Copy(r.Files, texts)
			break
		}
		maps.Copy(bad, more)
	}
	r.Mutants = slices.DeleteFunc(r.Mutants, func(m *Mutant) bool { return bad[m.ID] })
	return nil
}

// ordered returns the nodes with sites in the order of the code.
func (f *file) ordered() []ast.Node {
	return slices.SortedFunc(maps.Keys(f.sites), func(a, b ast.Node) int {
		return cmp.Or(cmp.Compare(a.Pos(), b.Pos()), cmp.Compare(b.End(), a.End()), cmp.Compare(kind(a), kind(b)))
	})
}

// kind orders nodes of the same text: a statement has its expression.
func kind(n ast.Node) int {
	if _, ok := n.(ast.Stmt); ok {
		return 0
	}
	return 1
}

// splice returns the text of n between two offsets, with the sites that it has.
func (p *pkg) splice(f *file, n ast.Node, bad map[int]bool, from, to int) string {
	var b strings.Builder
	ast.Inspect(n, func(child ast.Node) bool {
		s := f.sites[child]
		if child == nil || child == n || s == nil {
			return true
		}
		start, end := p.fset.Position(child.Pos()).Offset, p.fset.Position(child.End()).Offset
		b.WriteString(f.text[from:start])
		b.WriteString(s.wrap(p.splice(f, child, bad, start, end), bad))
		from = end
		return false
	})
	b.WriteString(f.text[from:to])
	return b.String()
}

func (s *site) wrap(original string, bad map[int]bool) string {
	if s.as != "" {
		return s.as
	}
	text := s.choose(original, bad)
	if s.call != "" {
		text = s.call + "(" + text + ")"
	}
	return text
}

// choose returns a text that chooses between the alternatives of a site and what is there.
func (s *site) choose(original string, bad map[int]bool) string {
	alts := slices.DeleteFunc(slices.Clone(s.alts), func(a alternative) bool { return bad[a.mutant.ID] })
	if len(alts) == 0 {
		return original
	}
	var b strings.Builder
	fmt.Fprintf(&b, " /*<%d*/", -s.id) // after a space, because a slash may stand before it
	if s.typ != "" {
		fmt.Fprintf(&b, "func() %s { switch mutantAt(%d); {", s.typ, s.id)
		for _, a := range alts {
			fmt.Fprintf(&b, "case mutantChosen(%d): return /*<%d*/%s/*>*/;", a.mutant.ID, a.mutant.ID, a.text)
		}
		fmt.Fprintf(&b, "}; return %s }()", original)
	} else {
		fmt.Fprintf(&b, "if mutantAt(%d); false { }", s.id)
		for _, a := range alts {
			fmt.Fprintf(&b, " else if mutantChosen(%d) { /*<%d*/%s/*>*/ }", a.mutant.ID, a.mutant.ID, a.text)
		}
		fmt.Fprintf(&b, " else { %s }", original)
	}
	b.WriteString("/*>*/")
	return b.String()
}

// marks surround the text of a mutant, and with a negative number a whole site.
var marks = regexp.MustCompile(`/\*<(-?\d+)\*/|/\*>\*/`)

// check compiles texts and returns the mutants in which there are errors.
func (p *pkg) check(texts map[string]string) (bad map[int]bool, err error) {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for name, text := range texts {
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("the generated file does not parse: %w\n%s", err, text)
		}
		parsed = append(parsed, f)
	}
	bad = map[int]bool{}
	config := types.Config{Importer: p.imports, Error: func(e error) {
		var broken types.Error
		if !errors.As(e, &broken) {
			err = e
			return
		}
		at := fset.Position(broken.Pos)
		mutant := p.markedAt(texts[at.Filename], at.Offset)
		if len(mutant) == 0 {
			err = fmt.Errorf("the generated file does not compile: %w", e)
		}
		for _, id := range mutant {
			bad[id] = true
		}
	}}
	_, _ = config.Check(p.path, fset, parsed, nil)
	if len(bad) > 0 {
		return bad, nil // other errors may come from these
	}
	return nil, err
}

// markedAt returns the mutants of the innermost text with marks around an offset.
func (p *pkg) markedAt(text string, offset int) (ids []int) {
	var open []int
	for _, m := range marks.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > offset {
			break
		}
		if m[2] < 0 {
			open = open[:len(open)-1]
			continue
		}
		id, _ := strconv.Atoi(text[m[2]:m[3]])
		open = append(open, id)
	}
	if len(open) == 0 {
		return nil
	}
	id := open[len(open)-1]
	if id > 0 {
		return []int{id}
	}
	for _, f := range p.files {
		for _, s := range f.sites {
			for _, a := range s.alts {
				if s.id == -id {
					ids = append(ids, a.mutant.ID)
				}
			}
		}
	}
	return ids
}
