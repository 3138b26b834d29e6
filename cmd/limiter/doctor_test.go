//go:build unix

package main_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

// finding is the JSON of a check.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Advice string `json:"advice"`
}

// problems returns what the doctor finds that is not ok.
func problems(t *testing.T, url string, args ...string) (bad []finding) {
	t.Helper()
	a := limiterCLI(t, url, append([]string{"doctor", "-o", "json"}, args...)...)
	for _, f := range decode[[]finding](t, a) {
		if !f.OK {
			bad = append(bad, f)
		}
		if f.OK != (f.Advice == "") || f.Found == "" {
			t.Errorf("%+v", f)
		}
	}
	if want := map[bool]int{true: 5, false: 0}[len(bad) > 0]; a.code != want {
		t.Errorf("exit code %d, want %d\n%s%s", a.code, want, a.stdout, a.stderr)
	}
	return bad
}

// finds wants exactly one problem: the check, and what its advice says.
func finds(t *testing.T, url, check, advice string, args ...string) {
	t.Helper()
	bad := problems(t, url, args...)
	if len(bad) != 1 || bad[0].Check != check || !strings.Contains(bad[0].Advice, advice) {
		t.Errorf("found %+v, want %s: %s", bad, check, advice)
	}
}

// nothingFound wants no problem.
func nothingFound(t *testing.T, url string, args ...string) {
	t.Helper()
	if bad := problems(t, url, args...); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "login", bucket, "alice", 1)
		use(t, db.store, "exports", window, "alice", 1)
		nothingFound(t, db.url)
		contains(t, succeeds(t, db.url, "doctor").stdout, "ok  connection", "1 of 1 applied", "0 of 1 rows, all read")
		db.exec(t, "DELETE FROM limiter_goose_version WHERE version_id > 0")
		if bad := problems(t, db.url); len(bad) == 0 || bad[0].Check != "migrations" || !strings.Contains(bad[0].Advice, "limiter migrate up") {
			t.Errorf("%+v, want that no migration is recorded", bad)
		}
	})
}

func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	const storage = "storage of limiter_fixed_windows"
	for _, c := range []struct {
		name, check, advice string
		statements          []string
	}{
		{"no table of overrides", "tables", "limiter migrate up", []string{"DROP TABLE limiter_overrides"}},
		{"no column", "decisions", "restore what is missing", []string{"ALTER TABLE limiter_token_buckets DROP COLUMN granted CASCADE"}},
		{"no primary key", "decisions", "restore what is missing", []string{"ALTER TABLE limiter_fixed_windows DROP CONSTRAINT limiter_fixed_windows_pkey"}},
		{"a row policy", "decisions", "create a row-level security policy", []string{"ALTER TABLE limiter_token_buckets ENABLE ROW LEVEL SECURITY"}},
		{"no page floor", "storage of limiter_token_buckets", "first 32 pages", []string{"TRUNCATE limiter_token_buckets"}},
		{"no fillfactor", storage, "fillfactor = 70", []string{"ALTER TABLE limiter_fixed_windows RESET (fillfactor)"}},
		{"truncated by VACUUM", storage, "vacuum_truncate = off", []string{"ALTER TABLE limiter_fixed_windows RESET (vacuum_truncate)"}},
		{"low HOT ratio", "HOT updates of limiter_token_buckets", "drop indexes", []string{
			"CREATE INDEX ON limiter_token_buckets (at)",
			"INSERT INTO limiter_token_buckets SELECT 4e18, 1, 1000, 5, 0, 'login', 'a'",
			"DO $$ BEGIN FOR i IN 1..1200 LOOP UPDATE limiter_token_buckets SET at = at + 1; END LOOP; END $$",
		}},
		{"dead rows", "dead rows of limiter_token_buckets", "VACUUM", []string{
			"ALTER TABLE limiter_token_buckets SET (autovacuum_enabled = off)", expired("", "12000"), "DELETE FROM limiter_token_buckets",
		}},
		{"expired rows", "expired rows of limiter_token_buckets", "limiter sweep", []string{expired("", "12000")}},
		{"a server that only reads", "server", "primary", []string{
			"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := migratedPostgres(t)
			url := db.url
			if c.check == "decisions" {
				url = newRole(t, db, applicationGrants...)
			}
			db.exec(t, c.statements...)
			finds(t, url, c.check, c.advice)
		})
	}
}

func TestDoctorLockedTable(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	conn, err := pgx.Connect(t.Context(), db.url)
	must(t, err)
	defer conn.Close(context.Background())
	must(t, testenv.ErrorOf(conn.Exec(t.Context(), "BEGIN; LOCK TABLE limiter_token_buckets")))
	finds(t, db.url, "decisions", "pg_stat_activity", "--timeout", "2s")
}

func TestDoctorSQLite(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	db.exec(t, expired(db.url, "30000")) // more than one chunk
	bad := problems(t, db.url)
	if len(bad) != 1 || bad[0].Check != "expired rows of limiter_token_buckets" || !strings.Contains(bad[0].Found, "in a sample") {
		t.Errorf("%+v, want expired rows", bad)
	}
	db.exec(t, "DELETE FROM limiter_token_buckets", "DROP TABLE limiter_overrides")
	finds(t, db.url, "tables", "limiter migrate up")
}

func TestDoctorQueryMode(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	pooler := pgBouncer(t, db.url)
	finds(t, pooler, "query mode", "default_query_exec_mode=exec")
	contains(t, succeeds(t, pooler+"&default_query_exec_mode=exec", "doctor").stdout, "exec works behind this pooler, which is in transaction mode")
	finds(t, pooler+"&default_query_exec_mode=describe_exec", "query mode", "default_query_exec_mode=exec")
	contains(t, succeeds(t, db.url, "doctor").stdout, "there is no pooler")

	// The other commands work in any mode.
	use(t, db.store, "login", bucket, "alice", 1)
	succeeds(t, pooler, "migrate", "status")
	contains(t, succeeds(t, pooler, "peek", "login", "alice").stdout, "1 of 5")
	succeeds(t, pooler, "block", "login", "alice", "--for", "1h")
	succeeds(t, pooler, "reset", "login", "alice")
	succeeds(t, pooler, "override", "set", "login", "alice", "--capacity", "7", "--interval", "1m")
	contains(t, succeeds(t, pooler, "override", "list").stdout, "bucket of 7")
	succeeds(t, pooler, "sweep")
}

func TestDoctorPoolers(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	full := pgBouncer(t, db.url, "default_pool_size = 1")
	finds(t, full, "query mode", "default_query_exec_mode=exec")
	contains(t, succeeds(t, full+"&default_query_exec_mode=exec", "doctor").stdout, "exec works behind this pooler")
	bad := problems(t, pgBouncer(t, db.url, "pool_mode = statement")+"&default_query_exec_mode=exec")
	if len(bad) == 0 || bad[0].Check != "query mode" || bad[0].Advice != "set pool_mode = transaction" {
		t.Errorf("%+v", bad)
	}
}

// pgBouncer starts a pooler in transaction mode, unless settings say otherwise, and returns the URL of
// the database behind it.
func pgBouncer(t *testing.T, target string, settings ...string) string {
	t.Helper()
	program, err := daemon.FindPooler("pgbouncer")
	if err != nil {
		testenv.Unavailable(t, "pgbouncer", err)
	}
	version, err := exec.CommandContext(t.Context(), program, "--version").Output()
	must(t, err)
	if !strings.Contains(string(version), "1.18") { // PgBouncer knows this setting since 1.21
		settings = append([]string{"max_prepared_statements = 0"}, settings...)
	}
	p, err := daemon.NewPgBouncer(program, target, settings...)
	must(t, err)
	stopAfter(t, p.Daemon)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, p.Start(ctx))
	return p.DSN
}

// stopAfter stops a program when the test ends.
func stopAfter(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	t.Cleanup(func() { must(t, d.Stop()) })
}

func TestDoctorClock(t *testing.T) {
	t.Parallel()
	testenv.SkipShort(t)
	compiler, err := exec.LookPath("cc")
	if err != nil {
		testenv.Unavailable(t, "cc", err)
	}
	server, err := daemon.NewPostgres(t.Context(), "")
	if err != nil {
		testenv.Unavailable(t, "postgres", err)
	}
	stopAfter(t, server.Daemon)
	library := filepath.Join(server.Dir, "clock.so")
	if out, err := exec.Command(compiler, "-O2", "-shared", "-fPIC", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	server.Env = []string{"LD_PRELOAD=" + library}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, server.Start(ctx, clusterSettings...))
	succeeds(t, server.DSN, "migrate", "up")
	finds(t, server.DSN, "clock", "synchronize")
	contains(t, limiterCLI(t, server.DSN, "doctor").stdout, "ahead of this machine")
}
