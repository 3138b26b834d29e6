package postgres_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/dbtest"
)

// A reader follows a lone take, which is granted on a warm pool, through few files and functions.
func TestPathOfATake(t *testing.T) {
	const mostFiles, mostFunctions = 25, 92
	dir := t.TempDir()
	program, profile := filepath.Join(dir, "path"), filepath.Join(dir, "profile")
	execute := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	execute("go", "build", "-cover", "-covermode=atomic", "-coverpkg=github.com/sqlimit/limiter/...", "-o", program, "./testdata/path")
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		execute(program, d.dsn, d.schema(t))
		execute("go", "tool", "covdata", "textfmt", "-i", dir, "-o", profile)
		files, functions := map[string]bool{}, []string{}
		executed := regexp.MustCompile(`(?m)^github\.com/sqlimit/limiter/(\S+\.go):\d+:\s+(\S+)\s+(\d+\.\d)%$`)
		for _, m := range executed.FindAllStringSubmatch(execute("go", "tool", "cover", "-func", profile), -1) {
			if m[3] != "0.0" && !strings.Contains(m[1], "testdata") {
				files[m[1]] = true
				functions = append(functions, m[1]+": "+m[2])
			}
		}
		t.Logf("%d files, %d functions:\n%s", len(files), len(functions), strings.Join(functions, "\n"))
		if len(files) == 0 || len(files) > mostFiles || len(functions) > mostFunctions {
			t.Errorf("want at most %d files and %d functions", mostFiles, mostFunctions)
		}
	})
}
