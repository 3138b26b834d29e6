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
	"sync"
)

// builder makes test programs that have all mutants in them.
type builder struct {
	root, dir, overlay string
	mu                 sync.Mutex
	programs           map[string]*program
}

// program is the test program of one package.
type program struct {
	pkg  string // from the root of the repository: "./memory"
	path string
	once sync.Once
	err  error
}

// newBuilder writes the generated files to dir.
func newBuilder(root, dir string, files map[string]string) (*builder, error) {
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(dir, strings.ReplaceAll(name, "/", "+"))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
		replace[filepath.Join(root, name)] = path
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, dir: dir, overlay: filepath.Join(dir, "overlay.json"), programs: map[string]*program{}}
	return b, os.WriteFile(b.overlay, list, 0o644)
}

// program builds the test program of a package, once.
func (b *builder) program(ctx context.Context, pkg string) (*program, error) {
	b.mu.Lock()
	p := b.programs[pkg]
	if p == nil {
		name := strings.NewReplacer("/", "-", ".", "").Replace(pkg)
		p = &program{pkg: pkg, path: filepath.Join(b.dir, "root"+name+".test")}
		b.programs[pkg] = p
	}
	b.mu.Unlock()
	p.once.Do(func() {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", b.overlay, "-o", p.path, pkg)
		cmd.Dir = b.root
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
		}
	})
	return p, p.err
}
