//go:build unix

package main_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
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

// A proxy closes the connection when the program sends its first statement.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	u, err := url.Parse(db.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	target := u.Host
	u.Host = proxy.Addr().String()
	pass := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer server.Close()
		go func() { _, _ = io.Copy(client, server) }()
		buf := make([]byte, 4096)
		for {
			n, err := client.Read(buf)
			if err != nil || buf[0] == 'P' || buf[0] == 'Q' {
				return
			}
			_, _ = server.Write(buf[:n])
		}
	}
	go func() {
		for {
			client, err := proxy.Accept()
			if err != nil {
				return
			}
			go pass(client)
		}
	}()
	fails(t, u.String(), 3, []string{"unexpected EOF"}, "peek", "login", "alice")
}

func TestSweepOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	db.exec(t, expired("", "3000"))
	x := openTerminal(t, 20, db.url, "sweep")
	x.end()
	lines := strings.Split(x.output(), "\r")
	for _, line := range lines[:len(lines)-2] { // before the result
		if width := ansi.StringWidth(line); width >= 20 && !strings.Contains(line, "deleted 3000 rows in") {
			t.Errorf("%d columns: %q, want less than 20", width, line)
		}
	}
	contains(t, x.output(), "deleted 3000 rows in", "[")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	contains(t, succeeds(t, "", "--version").stdout, "limiter version ")
}
