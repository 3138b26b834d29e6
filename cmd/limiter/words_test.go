//go:build unix

package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/jackc/pgx/v5"

	program "github.com/sqlimit/limiter/cmd/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestMissingTables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "empty.db")
	must(t, os.WriteFile(file, nil, 0o600))
	test := func(t *testing.T, url string) {
		t.Helper()
		for args, code := range map[string]int{
			"doctor": 5, "sweep": 4, "peek login alice": 4, "top": 4, "override list": 4,
			"block login alice --for 1h --limit 3 --window 1h": 4,
		} {
			a := limiterCLI(t, url, strings.Fields(args)...) // every run looks for words of Go
			contains(t, a.stdout+a.stderr, "limiter migrate up")
			testenv.Equal(t, a.code, code, "exit code of limiter", args)
		}
		if bad := problems(t, url); len(bad) < 2 {
			t.Errorf("the doctor finds %+v", bad)
		}
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := emptyPostgres(t)
		test(t, url)
		a := limiterCLI(t, url, "doctor")
		contains(t, a.stdout, "FIX", "lacks "+allTables()+", limiter_overrides")
		testenv.Equal(t, a.stderr, "", "standard error of the doctor")
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+file)
		contains(t, limiterCLI(t, "sqlite:"+file, "sweep").stderr, "limiter migrate up: SQL logic error")
	})
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	const set, quota = "override set login alice", "block exports alice --for 1h "
	for _, c := range []struct{ args, want string }{
		{"peak", `unknown command "peak"`},
		{"\x1b[31m", `\x1b[31m`},
		{"migrate", "up, down or status"},
		{"override", "set, list or rm"},
		{"peek", "LIMITER KEY"},
		{"peek login --key-hex xy", "in hex"},
		{"peek login ", "key is empty"},
		{"peek login alice --no-such-flag", "unknown flag"},
		{"peek login -x", "and -- before a KEY that begins with a dash"},
		{"peek login -d=x", "and -- before a KEY that begins with a dash"},
		{"peek login alice --output xml", "text or json"},
		{"peek login alice --schema other", "leave out --schema"},
		{"peek login alice --timeout 0", "--timeout is 0s"},
		{"peek login alice --database mysql://user:hunter2@host/db", "postgres://..., 'host=... dbname=...' or sqlite:PATH"},
		{"peek login alice --database postgres://user:hunter2@host:port/db", "port"},
		{"migrate up --database mysql://user:hunter2@host/db", "or sqlite:PATH"},
		{"migrate up --database sqlite:", "write the path of the file, such as sqlite:app.db"},
		{"peek login alice --database sqlite:file:app.db", "write the path alone"},
		{"peek \xff alice", "name has byte 0xff"},
		{"peek log! k", "the limiter's name"},
		{"override list ä", "the limiter's name"},
		{"block login alice --for 1h", "--capacity"},
		{"block login alice --for 1h --limit 3 --capacity 3", "one of the two"},
		{"block login alice --for 1h --interval 3s", "a bucket needs both --capacity and --interval"},
		{"block login alice --for 1h --capacity 5", "a bucket needs both --capacity and --interval"},
		{"block login alice --for 1h --limit 5", "a window needs both --limit and --window"},
		{"block login alice --for 1h --capacity 5 --interval 9999d", "--capacity"},
		{"block login alice --for=-1d --capacity 1 --interval 1us", "--for is -24h0m0s"},
		{"block login alice --for=1d-1h", `"1d-1h" is no duration`},
		{"block login alice --for=1w", `"1w" is no duration; write one such as 90s, 1h30m or 7d`},
		{"block login alice --for=999999d", "is too long"},
		{"block login alice", "--for is 0s; pass how long"},
		{set, "no policy"},
		{set + " --limit 0", "--limit is 0; it must be 1 to 2^60"},
		{set + " --capacity 5 --interval 0", "--interval is 0s; it"},
		{set + " --capacity 5 --interval 1s --expires-in 0s", "--expires-in is 0s"},
		{set + " --capacity 5 --refill 2000000000 --interval 1s", "--refill"},
		{set + " --limit 3 --window 99999d", "--window is "},
		{quota + "--period fortnight", `--period is "fortnight"`},
		{quota + "--location Europe/Berlin", `--period is ""`},
		{quota + "--period month --start-day 32", "--start-day is 32; it must be 1 to 31"},
		{quota + "--period day --start-day 2", "--start-day is 2 and --period is day; leave --start-day out"},
		{quota + "--period day --location Mars", `--location is "Mars"`},
		{quota + "--period day --location Local", `--location is "Local"`},
		{quota + "--period day --window 24h", "only --limit goes with them"},
		{quota + "--period day --limit 0", "--limit is 0; it must be 1 to 2^60"},
		{"override set exports alice --limit 3 --period day", "unknown flag: --period"},
		{"migrate down --yes --database=", "--database is empty"},
		{"peek login alice --key-hex=", "--key-hex is empty"},
		{"sweep --from=", "--from is empty"},
		{"help nosuch", `no command "nosuch"`},
		{"completion bash2", `unknown command "bash2"`},
		{"sweep --limit -1", "negative"},
		{"sweep --from elsewhere", "that limiter sweep has printed"},
		{"top --every 10ms", "--every"},
		{"top --exact", "limiter top --exact LIMITER"},
	} {
		fails(t, db.url, 2, []string{c.want}, strings.Split(c.args, " ")...)
	}
	fails(t, db.url, 2, []string{"keyword/value"}, "peek", "login", "alice", "--database=host=x password=hunter2 port")
	fails(t, "", 2, []string{"DATABASE_URL"}, "peek", "login", "alice")
}

func TestDurations(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	for text, want := range map[string]string{"1d": "24h0m0s", "9d16h": "9d15h", "1.5d": "36h0m0s", "90m": "1h30m0s"} {
		a := succeeds(t, db.url, "block", "login", text, "--for", text, "--capacity", "1", "--interval", "1us")
		contains(t, a.stdout, "for another "+want)
	}
	succeeds(t, db.url, "sweep", "--for", "1d", "--timeout", "1d")
	succeeds(t, db.url, "top", "--once", "--every", "1d")
	contains(t, succeeds(t, db.url, "override", "set", "exports", "alice", "--limit", "3", "--window", "7d", "--expires-in", "30d").stdout, "3 per window of 7d0h")
}

func TestFileThatIsNoDatabase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	must(t, os.WriteFile(file, bytes.Repeat([]byte("text"), 1000), 0o600))
	for _, args := range []string{"peek login alice", "top", "override list", "sweep", "migrate status", "migrate up"} {
		for path, advice := range map[string]string{file: "restore it", file + "/app.db": "the database", filepath.Dir(file): "cannot be opened"} {
			fails(t, "sqlite:"+path, 4, []string{advice}, strings.Fields(args)...)
		}
	}
}

func TestKeywordDSN(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	use(t, db.store, "login", bucket, "alice", 1)
	u, err := url.Parse(db.url)
	must(t, err)
	password, _ := u.User.Password()
	keywords := "host=" + u.Hostname() + " port=" + u.Port() + " user=" + u.User.Username() + " dbname=" + u.Path[1:] + " password='" + password + "'"
	contains(t, succeeds(t, keywords, "peek", "login", "alice").stdout, "1 of 5")
	nothingFound(t, keywords)
	contains(t, succeeds(t, keywords+" default_query_exec_mode = exec", "doctor").stdout, "exec; there is no pooler")
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full")
	}
	defer full.Close()
	db := migratedSQLite(t)
	for _, args := range []string{"peek login alice", "reset login alice", "sweep", "sweep -o json", "top", "doctor", "override list", "help top"} {
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
	conn, err := pgx.Connect(t.Context(), db.url)
	must(t, err)
	must(t, testenv.ErrorOf(conn.PgConn().Exec(t.Context(), "BEGIN; LOCK limiter_token_buckets").ReadAll()))
	fails(t, db.url, 3, []string{"a table may be locked"}, "sweep", "--for", "1s")
	must(t, conn.Close(t.Context()))
}

func TestSweepOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	db.exec(t, expired("", "3000"))
	x := openTerminal(t, 20, db.url, "sweep")
	x.wantEnd(0)
	lines := strings.Split(x.output.String(), "\r")
	for _, line := range lines[:len(lines)-2] { // before the result
		if width := ansi.StringWidth(line); width >= 20 && !strings.Contains(line, "deleted 3000 rows in") {
			t.Errorf("%d columns: %q, want less than 20", width, line)
		}
	}
	contains(t, x.output.String(), "deleted 3000 rows in", "[")
}

func TestExitCodeOfALostConnection(t *testing.T) {
	t.Parallel()
	testenv.Equal(t, program.ExitCode(t.Context(), fmt.Errorf("read: %w", io.ErrUnexpectedEOF)), 3, "exit code")
}

func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	must(t, err)
	page := string(text)
	contains(t, succeeds(t, "", "--version").stdout, "limiter version ")
	_, list, _ := strings.Cut(succeeds(t, "", "help").stdout, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	commands := regexp.MustCompile(`(?m)^  (\w+)`).FindAllStringSubmatch(list, -1)
	if len(commands) < 10 {
		t.Fatalf("commands %q", commands)
	}
	for _, c := range commands {
		testenv.Equal(t, strings.Contains(page, "limiter "+c[1]) || strings.Contains(page, "`"+c[1]), true, "docs/cli.md shows limiter", c[1])
	}
	// Every flag that the page names exists.
	var help strings.Builder
	for _, c := range append(commands, []string{"", "override set"}, []string{"", "override list"}, []string{"", "migrate down"}) {
		help.WriteString(succeeds(t, "", append(strings.Fields(c[1]), "--help")...).stdout)
	}
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(page, -1) {
		testenv.Equal(t, strings.Contains(help.String(), flag), true, "a command has the flag", flag, "that docs/cli.md names")
	}
}
