package generate

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

type embedded struct {
	name  string // from the package
	site  int
	edits []edit
}

type edit struct {
	mutant   *Mutant
	from, to int
	text     string
}

func (p *pkg) findTexts(files []string) error {
	dir := filepath.Join(p.root, p.dir)
	for _, path := range files {
		if filepath.Ext(path) != ".sql" {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		e := &embedded{name: name}
		file := filepath.Join(p.dir, name)
		s := &sqlText{name: file, text: string(b), tokens: tokenize(string(b))}
		s.found = func(operator, fn, before, after string, from, to int, text string) {
			before, after = describe(before, after)
			m := &Mutant{File: file, Func: fn, Operator: operator, Before: before, After: after}
			e.edits = append(e.edits, edit{m, from, to, text})
		}
		s.find()
		slices.SortStableFunc(e.edits, func(a, b edit) int { return a.from - b.from })
		p.embeds = append(p.embeds, e)
	}
	return nil
}

// embedUse replaces what reads the embedded files, and notes which texts are sent.
func (s *scope) embedUse(n ast.Node) bool {
	if len(s.embeds) == 0 {
		return false
	}
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if id, ok := n.X.(*ast.Ident); ok && s.isEmbed(id) {
			if n.Sel.Name == "ReadFile" {
				s.site(n).as = "mutantReadFile"
			}
			return true
		}
	case *ast.Ident:
		if s.isEmbed(n) {
			s.site(n).as = "(mutantFS{})"
			return true
		}
	case *ast.CallExpr:
		if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(senders, method.Sel.Name) {
			for _, arg := range n.Args {
				if t := s.info.Types[arg]; t.Type != nil && isString(t.Type) {
					s.site(arg).call = "mutantSent"
					break
				}
			}
		}
	case *ast.IndexExpr:
		// SQLite's statements are prepared once and found by their names.
		if named, ok := s.info.Types[n.Index].Type.(*types.Named); ok && named.Obj().Name() == "statement" && s.namesStatements() && s.fn != "render" {
			s.site(n.Index).call = "mutantStatement"
		}
	}
	return false
}

// senders are the methods that send a text to the database.
var senders = []string{"Query", "QueryRow", "Exec", "Queue", "Prepare", "QueryContext", "QueryRowContext", "ExecContext", "PrepareContext"}

func (s *scope) isEmbed(id *ast.Ident) bool {
	v, ok := s.info.Uses[id].(*types.Var)
	return ok && v.Pkg() == s.types && v.Parent() == s.types.Scope() && types.TypeString(v.Type(), nil) == "embed.FS" && v.Name() == s.embedVar()
}

// embedVar returns the name of the variable that has the SQL files.
func (p *pkg) embedVar() string {
	for _, name := range []string{"files", "FS"} {
		if v, ok := p.types.Scope().Lookup(name).(*types.Var); ok && types.TypeString(v.Type(), nil) == "embed.FS" {
			return name
		}
	}
	return ""
}

// namesStatements reports whether the package keeps its texts by names, as SQLite's does.
func (p *pkg) namesStatements() bool {
	return p.types.Scope().Lookup("statement") != nil && p.types.Scope().Lookup("texts") != nil
}

// textFile is added to a package with SQL files.
const textFile = "zz_mutant_texts.go"

func (p *pkg) texts() string {
	var sites, edits strings.Builder
	for _, e := range p.embeds {
		fmt.Fprintf(&sites, "\t%q: %d,\n", e.name, e.site)
		for _, ed := range e.edits {
			fmt.Fprintf(&edits, "\t%d: {%q, %d, %d, %s},\n", ed.mutant.ID, e.name, ed.from, ed.to, strconv.Quote(ed.text))
		}
	}
	statement := ""
	if p.namesStatements() {
		statement = "func mutantStatement(st statement) statement { mutantSent(texts[st]); return st }\n"
	}
	return strings.NewReplacer("NAME", p.types.Name(), "FILES", p.embedVar(), "SITES", sites.String(), "EDITS", edits.String()).
		Replace(textHelper) + statement
}

// textHelper changes texts as they are read. If sites are recorded, each text gets a comment that
// tells its site when it is sent.
const textHelper = `package NAME

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"testing/fstest"
)

var mutantSites = map[string]int{
SITES}

var mutantEdits = map[int]struct {
	file     string
	from, to int
	text     string
}{
EDITS}

var (
	mutantSections = regexp.MustCompile("(?m)^-- section: .*\n|\\A")
	mutantMarks    = regexp.MustCompile("/\\* mutant:([0-9]+) \\*/")
)

func mutantReadFile(name string) ([]byte, error) {
	text, err := mutantEdited(name)
	if site := mutantSites[name]; site > 0 && mutantReached != nil {
		text = mutantSections.ReplaceAll(text, []byte(fmt.Sprintf("$0/* mutant:%d */ ", site)))
	}
	return text, err
}

func mutantEdited(name string) ([]byte, error) {
	text, err := FILES.ReadFile(name)
	end := len(text) // of what is not changed yet
	for _, id := range slices.Backward(mutantIDs) {
		if e := mutantEdits[id]; e.file == name && e.to <= end && err == nil {
			text = append(append(append([]byte(nil), text[:e.from]...), e.text...), text[e.to:]...)
			end = e.from
		}
	}
	return text, err
}

func mutantSent(text string) string {
	if mutantReached != nil {
		for _, m := range mutantMarks.FindAllStringSubmatch(text, -1) {
			site, _ := strconv.Atoi(m[1])
			mutantAt(site)
		}
	}
	return text
}

// mutantFS is for what reads the files in another way. Each read counts as reached.
type mutantFS struct{}

func (mutantFS) ReadFile(name string) ([]byte, error) {
	mutantAt(mutantSites[name])
	return mutantEdited(name)
}

func (mutantFS) ReadDir(name string) ([]fs.DirEntry, error) { return FILES.ReadDir(name) }

func (f mutantFS) Open(name string) (fs.File, error) {
	if mutantSites[name] == 0 {
		return FILES.Open(name)
	}
	text, err := f.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return fstest.MapFS{name: {Data: text, Mode: 0o444}}.Open(name)
}
`
