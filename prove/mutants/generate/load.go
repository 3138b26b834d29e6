package generate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listedPackage is a part of what go list tells of a package.
type listedPackage struct {
	Dir, ImportPath, Export string
	GoFiles, EmbedFiles     []string
}

// list runs go list for packages and all that they import. It compiles what is not in the cache.
func list(ctx context.Context, root string, dirs []string) (map[string]*listedPackage, error) {
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,EmbedFiles"}
	args = append(args, helperImports...)
	for _, dir := range dirs {
		args = append(args, "./"+dir)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	listed := map[string]*listedPackage{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return listed, nil
		} else if err != nil {
			return nil, err
		}
		listed[p.ImportPath], listed[p.Dir] = &p, &p
	}
}

// pkg is a package that is being changed.
type pkg struct {
	root, dir, path string
	fset            *token.FileSet
	files           []*file
	imports         types.Importer
	types           *types.Package
	info            *types.Info
	embeds          []*embedded
}

// file is a file of a package, with its sites.
type file struct {
	name  string // from the root of the repository
	text  string
	ast   *ast.File
	names map[string]string // of imported packages in this file, by path
	sites map[ast.Node]*site
}

// load parses and checks a package.
func load(root, dir string, listed map[string]*listedPackage) (*pkg, error) {
	l := listed[filepath.Join(root, dir)]
	if l == nil {
		return nil, fmt.Errorf("go list does not know %s", dir)
	}
	p := &pkg{root: root, dir: dir, path: l.ImportPath, fset: token.NewFileSet()}
	p.imports = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if l := listed[path]; l != nil && l.Export != "" {
			return os.Open(l.Export)
		}
		return nil, fmt.Errorf("no export data of %s", path)
	})
	var parsed []*ast.File
	for _, name := range l.GoFiles {
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(p.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, &file{
			name: filepath.Join(dir, name), text: string(text), ast: f,
			names: map[string]string{}, sites: map[ast.Node]*site{},
		})
		parsed = append(parsed, f)
	}
	p.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{},
	}
	var err error
	p.types, err = (&types.Config{Importer: p.imports}).Check(p.path, p.fset, parsed, p.info)
	if err != nil {
		return nil, err
	}
	for _, f := range p.files {
		p.name(f)
	}
	err = p.findTexts(l.EmbedFiles)
	return p, err
}

// name notes by which names a file knows the packages that it imports.
func (p *pkg) name(f *file) {
	for _, spec := range f.ast.Imports {
		object := p.info.Implicits[spec]
		if spec.Name != nil {
			object = p.info.Defs[spec.Name]
		}
		if n, ok := object.(*types.PkgName); ok {
			f.names[n.Imported().Path()] = n.Name()
		}
	}
}

// source returns the text of a node.
func (p *pkg) source(f *file, n ast.Node) string {
	return f.text[p.fset.Position(n.Pos()).Offset:p.fset.Position(n.End()).Offset]
}
