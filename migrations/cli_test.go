package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// unusedDrivers keeps drivers that no test needs out of the goose that is built here: they are most
// of the time that it takes.
const unusedDrivers = "no_azuresql no_clickhouse no_libsql no_mssql no_mysql no_vertica no_ydb"

// goose returns the path of the goose command of the version in go.mod. It is built outside this
// module: its drivers would add some dozens of modules to go.mod. Only the first run on a machine
// takes a minute.
var goose = sync.OnceValues(func() (string, error) {
	if testing.Short() {
		return "", errors.New("-short builds no program")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	version, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/pressly/goose/v3"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "limiter-test", "goose-"+version)
	install := exec.CommandContext(ctx, "go", "install", "-tags", unusedDrivers, "github.com/pressly/goose/v3/cmd/goose@"+version)
	install.Dir = os.TempDir()
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
	_, err = output(install)
	return filepath.Join(dir, "goose"), err
})

// output runs a command; its error says what the command wrote.
func output(c *exec.Cmd) (string, error) {
	text, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), nil
}

// command returns the goose command on the files as they are shipped.
func (d database) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := goose()
	if err != nil {
		testenv.Unavailable(t, "goose", err)
	}
	driver, dsn, table := "sqlite3", strings.TrimPrefix(d.dsn, "file:"), "limiter_goose_version"
	if d.dialect == migrations.Postgres {
		driver, dsn, table = "postgres", with(d.dsn, "search_path", d.schema), d.schema+"."+table
	}
	args = append([]string{"-env", "none", "-dir", string(d.dialect), "-table", table, driver, dsn}, args...)
	return exec.CommandContext(t.Context(), program, args...)
}

// cli runs the goose command, which must succeed, and returns what it wrote.
func (d database) cli(t *testing.T, args ...string) string {
	t.Helper()
	text, err := output(d.command(t, args...))
	must(t, err)
	return text
}

// A reader of docs/operations.md needs no clone: its commands find the files by the go.mod of the reader's module.
func TestGoose(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	line := func(beginning string) string {
		command := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(beginning) + `.*$`).FindString(string(page))
		if command == "" {
			t.Fatalf("docs/operations.md has no command that begins with %s", beginning)
		}
		return command + "\n"
	}
	_, version, _ := strings.Cut(strings.TrimSpace(line("go install -tags ")), "@")
	if program, err := goose(); err == nil && filepath.Base(filepath.Dir(program)) != "goose-"+version {
		t.Errorf("docs/operations.md installs goose %s, the tests run %s", version, program)
	}
	scripts := map[migrations.Dialect]string{
		migrations.Postgres: line("dir=") + line(`goose -dir "$dir/postgres" -table public.`),
		migrations.SQLite:   line("dir=") + strings.Replace(line(`goose -dir "$dir/sqlite"`), "app.db", `"$DATABASE_URL"`, 1),
	}
	test := func(t *testing.T, d database, up func()) {
		up()
		d.wantGolden(t)
		d.wantUsable(t)
		d.down(t)
		d.wantEmpty(t)

		d.up(t)
		d.cli(t, "up") // nothing to do
		d.wantGolden(t)
		d.wantUsable(t)
		if got := d.cli(t, "version"); !strings.HasSuffix(got, "version 1") {
			t.Errorf("goose version after Up: %q", got)
		}
		if got := d.cli(t, "status"); strings.Contains(got, "Pending") || !strings.Contains(got, "00001_create_limiter_tables.sql") {
			t.Errorf("goose status after Up: %q", got)
		}
		d.cli(t, "down-to", "0")
		d.wantApplied(t, false)

		d.up(t)
		d.cli(t, "redo")
		d.wantGolden(t)
		d.cli(t, "reset")
		d.wantApplied(t, false)
		d.down(t) // removes goose's own table
		d.wantEmpty(t)
	}
	onEach(t, func(t *testing.T, d database) {
		test(t, d, func() { d.shell(t, scripts[d.dialect]) })
		if d.dialect == migrations.Postgres {
			d = d.in(t, "app")
			test(t, d, func() { d.cli(t, "up") })
		}
	})
}

// shell runs a script in a new module that uses this one. It finds goose in its PATH.
func (d database) shell(t *testing.T, script string) {
	t.Helper()
	program, err := goose()
	if err != nil {
		testenv.Unavailable(t, "goose", err)
	}
	repository, err := filepath.Abs("..")
	must(t, err)
	module := t.TempDir()
	goMod := "module example.com/app\n\ngo 1.26.0\n\nrequire github.com/sqlimit/limiter v0.0.0\n\n" +
		"replace github.com/sqlimit/limiter => " + filepath.ToSlash(repository) + "\n"
	must(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte(goMod), 0o600))
	c := exec.CommandContext(t.Context(), "sh", "-euc", script)
	c.Dir = module
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "DATABASE_URL="+strings.TrimPrefix(d.dsn, "file:"),
		"PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
	must(t, testenv.ErrorOf(output(c)))
}

// The goose command takes no lock. Up sees its work only in the database.
func TestUpWhileGooseMigrates(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		command := d.command(t, "up")
		var other sync.WaitGroup
		other.Go(func() { _, _ = output(command) }) // it may lose, and then it fails
		must(t, d.together(t, 2, nil, migrations.Up))
		other.Wait()
		d.wantGolden(t)
	})
}
