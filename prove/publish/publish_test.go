// Package publish_test installs the published modules as a user does, from a module proxy.
package publish_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/sqlimit/limiter/internal/testenv"
)

var must = testenv.Must

const (
	root    = "../.."
	version = "v0.1.0" // that the published modules require of each other
)

// published returns the directories of the published modules by their paths. The other modules of
// the workspace replace the root module, so nobody else could build them.
func published(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	must(t, err)
	work, err := modfile.ParseWork("go.work", text, nil)
	must(t, err)
	dirs := map[string]string{}
	for _, use := range work.Use {
		dir := filepath.Join(root, use.Path)
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		must(t, err)
		mod, err := modfile.Parse("go.mod", text, nil)
		must(t, err)
		if len(mod.Replace) == 0 {
			dirs[mod.Module.Mod.Path] = dir
		}
	}
	return dirs
}

func serve(t *testing.T, proxy, path, dir string) {
	t.Helper()
	to := filepath.Join(proxy, path, "@v")
	must(t, os.MkdirAll(to, 0o755))
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	must(t, err)
	for name, text := range map[string]string{
		"list": version, version + ".mod": string(mod),
		version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version),
	} {
		must(t, os.WriteFile(filepath.Join(to, name), []byte(text), 0o644))
	}
	archive, err := os.Create(filepath.Join(to, version+".zip"))
	must(t, err)
	must(t, zip.CreateFromDir(archive, module.Version{Path: path, Version: version}, dir))
	must(t, archive.Close())
}

// packages returns the import paths of the packages in a module that others may import, and those
// of its commands.
func packages(t *testing.T, dir string) (libraries, commands []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}} {{.Name}}{{end}}", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		path, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case path == "", slices.Contains(strings.Split(path, "/"), "internal"):
		case name == "main":
			commands = append(commands, path)
		default:
			libraries = append(libraries, path)
		}
	}
	return libraries, commands
}

func TestPublishedModules(t *testing.T) {
	home := t.TempDir()
	proxy, bin, app := filepath.Join(home, "proxy"), filepath.Join(home, "bin"), filepath.Join(home, "app")
	goCommand := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = app
		// The module cache holds all other modules as a proxy serves them. With -trimpath their
		// packages come from the build cache, wherever their source is.
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -modcacherw", "GOSUMDB=off", "GOBIN="+bin,
			"GOMODCACHE="+filepath.Join(home, "modules"), "GOPROXY=file://"+proxy+",file://"+downloads(t))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	must(t, os.Mkdir(app, 0o755))
	var imports, commands []string
	for path, dir := range published(t) {
		serve(t, proxy, path, dir)
		libraries, programs := packages(t, dir)
		imports, commands = append(imports, libraries...), append(commands, programs...)
	}
	if len(imports) < 8 || len(commands) == 0 {
		t.Fatalf("found the packages %q and the commands %q", imports, commands)
	}

	must(t, os.WriteFile(filepath.Join(app, "main.go"), []byte("package main\n\nimport (\n\t_ \""+strings.Join(imports, "\"\n\t_ \"")+"\"\n)\n\nfunc main() {}\n"), 0o644))
	goCommand("mod", "init", "example.com/app")
	goCommand("mod", "tidy")
	goCommand("build", "-o", os.DevNull, ".")
	for _, command := range commands {
		goCommand("install", command+"@"+version)
		program := filepath.Join(bin, filepath.Base(command))
		out, err := exec.CommandContext(t.Context(), program, "--help").CombinedOutput()
		testenv.Equal(t, err, nil, command, "--help:", string(out))
	}

	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	migrate := regexp.MustCompile(`(?m)^    go (run \S+ migrate up)$`).FindSubmatch(readme)
	if migrate == nil {
		t.Fatal("README.md does not show how to create the tables")
	}
	t.Setenv("DATABASE_URL", "sqlite:app.db")
	if out := goCommand(strings.Fields(string(migrate[1]))...); !strings.Contains(out, "00001_create_limiter_tables.sql") {
		t.Errorf("%s printed\n%s", migrate[0], out)
	}
}

func downloads(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	must(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "cache", "download")
}
