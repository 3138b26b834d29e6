package generate

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/packages"
)

type pkg struct {
	root, dir, path string
	fset            *token.FileSet
	files           []*file
	imports         importer
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

// importer knows the packages that the changed ones import, by path.
type importer map[string]*types.Package

func (i importer) Import(path string) (*types.Package, error) {
	if p := i[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not loaded", path)
}

// load parses and checks the packages in dirs. It compiles what they import if it is not in the cache.
func load(ctx context.Context, root string, dirs []string) ([]*pkg, error) {
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedEmbedFiles | packages.NeedImports |
		packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo
	config := packages.Config{Context: ctx, Mode: mode, Dir: root, Fset: token.NewFileSet()}
	patterns := helperImports
	for _, dir := range dirs {
		patterns = append(patterns[:len(patterns):len(patterns)], "./"+dir)
	}
	loaded, err := packages.Load(&config, patterns...)
	if err != nil {
		return nil, err
	}
	imports, byDir := importer{}, map[string]*packages.Package{}
	for _, l := range loaded {
		for _, broken := range l.Errors {
			err = errors.Join(err, broken)
		}
		imports[l.PkgPath], byDir[l.Dir] = l.Types, l
		for path, dependency := range l.Imports {
			imports[path] = dependency.Types
		}
	}
	var all []*pkg
	for _, dir := range dirs {
		l := byDir[filepath.Join(root, dir)]
		if l == nil || err != nil {
			return nil, errors.Join(err, fmt.Errorf("cannot load %s", dir))
		}
		p := &pkg{root: root, dir: dir, path: l.PkgPath, fset: config.Fset, imports: imports, types: l.Types, info: l.TypesInfo}
		for _, f := range l.Syntax {
			name := p.fset.Position(f.FileStart).Filename
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, &file{
				name: filepath.Join(dir, filepath.Base(name)), text: string(text), ast: f, names: p.names(f), sites: map[ast.Node]*site{},
			})
		}
		if err := p.findTexts(l.EmbedFiles); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (p *pkg) names(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		if n := p.info.PkgNameOf(spec); n != nil {
			names[n.Imported().Path()] = n.Name()
		}
	}
	return names
}

func (p *pkg) source(f *file, n ast.Node) string {
	return f.text[p.fset.Position(n.Pos()).Offset:p.fset.Position(n.End()).Offset]
}
