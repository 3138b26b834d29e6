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
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
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

// check type-checks the module in dir for a system, and returns the number of its packages, those of
// tests included. The error joins all type errors.
func check(ctx context.Context, dir, system string) (checked int, err error) {
	goos, goarch, found := strings.Cut(system, "/")
	if !found || types.SizesFor("gc", goarch) == nil {
		return 0, fmt.Errorf("%q is not a system; write GOOS/GOARCH, such as windows/amd64", system)
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return 0, err
	}
	loaded, err := packages.Load(&packages.Config{
		Context: ctx, Dir: root, Tests: true,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes,
		Env: append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, root) {
				for _, d := range file.Decls { // the bodies of a dependency's functions need not be checked
					if fn, ok := d.(*ast.FuncDecl); ok {
						fn.Body = nil
					}
				}
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		return 0, err
	}
	var errs []error
	packages.Visit(loaded, nil, func(p *packages.Package) {
		// go test generates the main package of each test program.
		if p.Module == nil || !p.Module.Main || strings.HasSuffix(p.ID, ".test") {
			return
		}
		checked++
		for _, broken := range p.Errors {
			errs = append(errs, broken)
		}
	})
	return checked, errors.Join(errs...)
}
