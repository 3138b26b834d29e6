//go:build unix

package main_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	program "github.com/sqlimit/limiter/cmd/limiter"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full")
	}
	defer full.Close()
	db := migratedSQLite(t)
	for _, args := range []string{"peek login alice", "reset login alice", "sweep", "sweep -o json", "top", "doctor", "override list"} {
		cmd := command(t.Context(), db.url, strings.Fields(args)...)
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = full, &stderr
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("limiter %s: %v, %q, want exit code 1", args, err, stderr.String())
		}
	}
}

func TestSweepThatFails(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	// A statement deletes up to 4,000 rows.
	db.exec(t, expired("", "20000"), "CREATE SEQUENCE deletes", `CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('deletes') > 12000 THEN RAISE 'terminating connection' USING ERRCODE = '57P01'; END IF;
			RETURN old;
		END $$`, "CREATE TRIGGER stop BEFORE DELETE ON limiter_token_buckets FOR EACH ROW EXECUTE FUNCTION stop()")
	a := limiterCLI(t, db.url, "sweep", "-o", "json")
	if got := decode[swept](t, a); a.code != 3 || got.Deleted == 0 || got.Complete {
		t.Errorf("%+v, want exit code 3 and the rows that were deleted", a)
	}
	contains(t, a.stderr, "terminating connection")
}

func TestSweepOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	db.exec(t, expired("", "3000"))
	x := openTerminal(t, 20, db.url, "sweep")
	x.wantEnd(0)
	lines := strings.Split(x.output(), "\r")
	for _, line := range lines[:len(lines)-2] { // before the result
		if width := ansi.StringWidth(line); width >= 20 && !strings.Contains(line, "deleted 3000 rows in") {
			t.Errorf("%d columns: %q, want less than 20", width, line)
		}
	}
	contains(t, x.output(), "deleted 3000 rows in", "[")
}

func TestExitCodeOfALostConnection(t *testing.T) {
	t.Parallel()
	if code := program.ExitCode(t.Context(), fmt.Errorf("read: %w", io.ErrUnexpectedEOF)); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	contains(t, succeeds(t, "", "--version").stdout, "limiter version ")
}
