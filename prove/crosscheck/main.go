// Command crosscheck type-checks all packages and tests of the module in the current directory for
// other systems:
//
//	go run ./prove/crosscheck windows/amd64 linux/386
//
// It finds what does not exist on a system or overflows there. It reads the declarations of all
// dependencies from their sources, and compiles nothing: go vet needs 20 times as long, because it
// compiles the standard library, SQLite and all other dependencies for each system first.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "crosscheck: no system is named; name one or more, such as windows/amd64")
		os.Exit(2)
	}
	for _, system := range os.Args[1:] {
		checked, err := check(context.Background(), ".", system)
		if err != nil {
			fmt.Fprintf(os.Stderr, "crosscheck: %s:\n%v\n", system, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d packages and tests\n", system, checked)
	}
}

type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

func (p listed) ours() bool { return p.Module != nil && p.Module.Main }

// check type-checks the module in dir for a system, and returns the number of its packages, those of
// tests included. The error joins all type errors.
func check(ctx context.Context, dir, system string) (checked int, err error) {
	goos, goarch, found := strings.Cut(system, "/")
	sizes := types.SizesFor("gc", goarch)
	if !found || sizes == nil {
		return 0, fmt.Errorf("%q is not a system; write GOOS/GOARCH, such as windows/amd64", system)
	}
	packages, err := list(ctx, dir, "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	if err != nil {
		return 0, err
	}
	// Imports come before what imports them.
	known := imports{"unsafe": types.Unsafe}
	var errs []error
	for _, p := range packages {
		files := token.NewFileSet()
		syntax, err := parse(files, p)
		if err != nil {
			return checked, err
		}
		config := types.Config{
			Importer: p.importer(known), Sizes: sizes, IgnoreFuncBodies: !p.ours(),
			Error: func(err error) { errs = append(errs, err) },
		}
		// config.Error has collected the error.
		known[p.ImportPath], _ = config.Check(p.ImportPath, files, syntax, nil)
		if p.ours() {
			checked++
		}
	}
	return checked, errors.Join(errs...)
}

// list returns the packages and tests of the module in dir, and all that they import.
func list(ctx context.Context, dir string, env ...string) (packages []listed, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for text := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := text.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		// go test generates the main package of each test program.
		if p.ImportPath != "unsafe" && !strings.HasSuffix(p.ImportPath, ".test") {
			packages = append(packages, p)
		}
	}
}

func parse(files *token.FileSet, p listed) (syntax []*ast.File, err error) {
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, file)
	}
	return syntax, nil
}

// imports is the packages that were checked, by the path that go list gives them.
type imports map[string]*types.Package

// importer returns an importer for the package. A test may import a variant of a package that is
// built for this test alone.
func (p listed) importer(known imports) types.Importer {
	return importerFunc(func(path string) (*types.Package, error) {
		if mapped, found := p.ImportMap[path]; found {
			path = mapped
		}
		if pkg := known[path]; pkg != nil {
			return pkg, nil
		}
		return nil, fmt.Errorf("%s was not listed", path)
	})
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
