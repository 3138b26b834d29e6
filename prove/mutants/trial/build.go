// Package trial runs tests on the mutants of package generate, and tells which survive.
package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is the test program of one package. It has all mutants in it.
type program struct {
	pkg  string // from the root of the repository: "./memory"
	path string
}

// WriteOverlay writes the file for -overlay, which names changed files by those that they replace.
func WriteOverlay(dir string, replace map[string]string) (file string, err error) {
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// program builds the test program of a package, once.
func (c *Campaign) program(ctx context.Context, pkg string) (*program, error) {
	if p := c.programs[pkg]; p != nil {
		return p, nil
	}
	name := strings.NewReplacer("/", "-", ".", "").Replace(pkg)
	p := &program{pkg: pkg, path: filepath.Join(c.Dir, "root"+name+".test")}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", c.overlay, "-o", p.path, pkg)
	cmd.Dir = c.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	c.programs[pkg] = p
	return p, nil
}
