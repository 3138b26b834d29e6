//go:build unix

package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// allTables returns the names of the tables of all kinds, separated by commas.
func allTables() string {
	var names []string
	for _, table := range migrations.Tables() {
		names = append(names, table.Name)
	}
	return strings.Join(names, ", ")
}

// applicationGrants are those that docs/operations.md asks for.
var applicationGrants = []string{
	"GRANT USAGE ON SCHEMA public TO %s",
	"GRANT SELECT, INSERT, UPDATE ON " + allTables() + " TO %s",
	"GRANT SELECT ON limiter_overrides TO %s",
}

func TestDoctorRoles(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	role := newRole(t, db, applicationGrants...)
	nothingFound(t, role)
	contains(t, succeeds(t, role, "doctor").stdout, "a decision of each kind worked", "may not sweep", "may not read limiter_goose_version")
	if rows := succeeds(t, db.url, "top").stdout; !strings.Contains(rows, "0 rows read") {
		t.Errorf("the doctor left rows:\n%s", rows)
	}
	reader := newRole(t, db, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO %s", "GRANT INSERT, UPDATE ON limiter_token_buckets TO %s")
	finds(t, reader, "privileges", `GRANT SELECT, INSERT, UPDATE ON "public".limiter_fixed_windows TO`)
}

func TestDoctorReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	// The program runs as another account, because root may write any file.
	other, err := daemon.New("", "cli", syscall.SIGKILL)
	must(t, err)
	stopAfter(t, other)
	file, copied := filepath.Join(other.Dir, "app.db"), filepath.Join(other.Dir, "limiter")
	succeeds(t, "sqlite:"+file, "migrate", "up")
	binary, err := os.ReadFile(os.Args[0])
	must(t, err)
	t.Cleanup(func() { _ = os.Chmod(other.Dir, 0o755) })
	must(t, errors.Join(os.WriteFile(copied, binary, 0o755), os.Chmod(file, 0o444), os.Chmod(other.Dir, 0o555)))
	cmd := other.Command(t.Context(), copied, "doctor")
	cmd.Env = command(t.Context(), "sqlite:"+file).Env
	out, err := cmd.Output()
	if err == nil || cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("exit code %d, want 4", cmd.ProcessState.ExitCode())
	}
	contains(t, string(out), "FIX  connection", "make the file and its directory writable")
}

func TestDoctorConnection(t *testing.T) {
	t.Parallel()
	port, err := testenv.FreePort()
	must(t, err)
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	must(t, os.WriteFile(garbage, []byte(strings.Repeat("garbage", 1000)), 0o600))
	for _, c := range []struct {
		name, url, found, advice string
		code                     int
	}{
		{"no server", fmt.Sprintf("postgres://user:hunter2@127.0.0.1:%d/db", port), "connection refused", "check the URL", 3},
		{"no database file", "sqlite:" + garbage, "file is not a database", "check the path", 1},
		{"a directory", "sqlite:" + filepath.Dir(garbage), "unable to open", "check the path", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := limiterCLI(t, c.url, "doctor")
			contains(t, a.stdout, "FIX  connection", c.advice)
			if strings.Count(a.stdout, c.found) != 1 || a.stderr != "" || strings.Contains(a.stdout, `\n`) || a.code != c.code {
				t.Errorf("want exit code %d and %q once, in one line: %+v", c.code, c.found, a)
			}
			if strings.HasPrefix(c.url, "sqlite:") && strings.Contains(a.stdout, "server") {
				t.Errorf("advice for a server:\n%s", a.stdout)
			}
			found := decode[[]finding](t, limiterCLI(t, c.url, "doctor", "-o", "json"))
			if len(found) != 1 || strings.Contains(found[0].Found, "\n") {
				t.Errorf("%+v", found)
			}
		})
	}
}
