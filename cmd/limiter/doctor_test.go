//go:build unix

package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

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
	testenv.Equal(t, a.code, map[bool]int{true: 5, false: 0}[len(bad) > 0], "exit code:", a.stdout, a.stderr)
	return bad
}

// finds wants exactly one problem: the check, and what the doctor found or advises.
func finds(t *testing.T, url, check, text string, args ...string) {
	t.Helper()
	bad := problems(t, url, args...)
	if len(bad) != 1 || bad[0].Check != check || !strings.Contains(bad[0].Found+"\n"+bad[0].Advice, text) {
		t.Errorf("found %+v, want %s: %s", bad, check, text)
	}
}

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
		db.exec(t, "DROP TABLE limiter_goose_version")
		contains(t, succeeds(t, db.url, "doctor").stdout, "another tool made the tables")
	})
}

func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	const storage = "storage of limiter_fixed_windows"
	const flush = "; SELECT pg_stat_force_next_flush()" // otherwise the doctor may look before the server has counted
	for _, c := range []struct {
		name, check, advice string
		statements          []string
	}{
		{"no table of overrides", "tables", "limiter migrate up", []string{"DROP TABLE limiter_overrides"}},
		{"no column", "decisions", "restore what is missing", []string{"ALTER TABLE limiter_token_buckets DROP COLUMN granted CASCADE"}},
		{"no primary key", "decisions", "restore what is missing", []string{"ALTER TABLE limiter_fixed_windows DROP CONSTRAINT limiter_fixed_windows_pkey"}},
		{"a full disk", "decisions", "free what the server lacks", []string{
			"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$",
			"CREATE TRIGGER full_disk BEFORE INSERT ON limiter_token_buckets EXECUTE FUNCTION full_disk()",
		}},
		{"a row policy", "decisions", "create a row-level security policy", []string{"ALTER TABLE limiter_token_buckets ENABLE ROW LEVEL SECURITY"}},
		{"no page floor", "storage of limiter_token_buckets", "first 32 pages", []string{"TRUNCATE limiter_token_buckets"}},
		{"no fillfactor", storage, "fillfactor = 70", []string{"ALTER TABLE limiter_fixed_windows RESET (fillfactor)"}},
		{"truncated by VACUUM", storage, "vacuum_truncate = off", []string{"ALTER TABLE limiter_fixed_windows RESET (vacuum_truncate)"}},
		{"low HOT ratio", "HOT updates of limiter_token_buckets", "drop indexes", []string{
			"CREATE INDEX ON limiter_token_buckets (at)",
			"INSERT INTO limiter_token_buckets SELECT 4e18, 1, 1000, 5, 0, 'login', 'a'",
			"DO $$ BEGIN FOR i IN 1..1200 LOOP UPDATE limiter_token_buckets SET at = at + 1; END LOOP; END $$" + flush,
		}},
		{"dead rows", "dead rows of limiter_token_buckets", "VACUUM", []string{
			"ALTER TABLE limiter_token_buckets SET (autovacuum_enabled = off)", expired("", "12000"), "DELETE FROM limiter_token_buckets" + flush,
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
	fails(t, db.url, 3, []string{"did not answer within 1s", `database "`, "a longer --timeout"}, "peek", "login", "alice", "--timeout", "1s")
	fails(t, db.url, 3, []string{"did not answer within 1s"}, "top", "--timeout", "1s")
}

func TestDoctorSQLite(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	db.exec(t, expired(db.url, "30000")) // more than one chunk
	finds(t, db.url, "expired rows of limiter_token_buckets", "in a sample")
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
	full := pgBouncer(t, db.url, "default_pool_size = 1")
	finds(t, full, "query mode", "default_query_exec_mode=exec")
	contains(t, succeeds(t, full+"&default_query_exec_mode=exec", "doctor").stdout, "exec works behind this pooler")
	bad := problems(t, pgBouncer(t, db.url, "pool_mode = statement")+"&default_query_exec_mode=exec")
	if len(bad) == 0 || bad[0].Check != "query mode" || bad[0].Advice != "set pool_mode = transaction" {
		t.Errorf("%+v", bad)
	}

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
	contains(t, succeeds(t, db.url, "top").stdout, "0 rows read")
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
	t.Cleanup(func() { _ = os.Chmod(other.Dir, 0o755) })
	// A file that this process writes cannot run while a child that another test starts still has it open.
	must(t, errors.Join(exec.CommandContext(t.Context(), "cp", os.Args[0], copied).Run(), os.Chmod(file, 0o444), os.Chmod(other.Dir, 0o555)))
	cmd := other.Command(t.Context(), copied, "doctor")
	cmd.Env = command(t.Context(), "sqlite:"+file).Env
	out, err := cmd.Output()
	testenv.Equal(t, cmd.ProcessState.ExitCode(), 4, "exit code:", err)
	contains(t, string(out), "FIX  connection", "fix the permissions of the file")
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
		{"no database file", "sqlite:" + garbage, "file is not a database", "check the path", 4},
		{"a directory", "sqlite:" + filepath.Dir(garbage), "unable to open", "check the path", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := limiterCLI(t, c.url, "doctor")
			contains(t, a.stdout, "FIX  connection", c.advice)
			if strings.Count(a.stdout, c.found) != 1 || a.stderr != "" || strings.Contains(a.stdout, `\n`) || a.code != c.code {
				t.Errorf("want exit code %d and %q once, in one line: %+v", c.code, c.found, a)
			}
			testenv.Equal(t, strings.HasPrefix(c.url, "sqlite:") && strings.Contains(a.stdout, "server"), false, "gives advice for a server:", a.stdout)
			found := decode[[]finding](t, limiterCLI(t, c.url, "doctor", "-o", "json"))
			if len(found) != 1 || strings.Contains(found[0].Found, "\n") {
				t.Errorf("%+v", found)
			}
		})
	}
}

// The cluster is the one whose coordinator LIMITER_TEST_CITUS_DSN names, as a superuser.
func TestDoctorCitus(t *testing.T) {
	t.Parallel()
	admin := os.Getenv("LIMITER_TEST_CITUS_DSN")
	if admin == "" {
		t.Skip("LIMITER_TEST_CITUS_DSN is not set")
	}
	inSchema := []string{"--schema", "cli_doctor"}
	run := func(args ...string) answer {
		t.Helper()
		return succeeds(t, admin, append(args, inSchema...)...)
	}
	execute(t, admin, "DROP SCHEMA IF EXISTS cli_doctor CASCADE", "CREATE SCHEMA cli_doctor")
	t.Cleanup(func() { execute(t, admin, "DROP SCHEMA cli_doctor CASCADE") })
	run("migrate", "up")
	nothingFound(t, admin, inSchema...) // plain tables work like those of any server
	execute(t, admin,
		"SELECT create_distributed_table('cli_doctor.limiter_token_buckets', 'limiter')",
		"SELECT create_reference_table('cli_doctor.limiter_fixed_windows')")
	bad, tables := problems(t, admin, inSchema...), len(migrations.Tables())
	if len(bad) != tables || bad[0].Found != "distributed by limiter" || bad[1].Found != "a reference table" || bad[2].Found != "not distributed, but another table is" {
		t.Errorf("%+v", bad)
	}
	for _, f := range bad { // the advice is SQL up to the page that it names
		advice, _, _ := strings.Cut(f.Advice, ": see")
		execute(t, admin, strings.Split(advice, ", then ")...)
	}
	nothingFound(t, admin, inSchema...)
	run("block", "login", "alice", "--for", "1h", "--capacity", "5", "--interval", "1m")
	run("sweep")
	contains(t, run("top").stdout, `"alice"`)
	contains(t, run("top", "--exact", "login").stdout, "1 row read", `"alice"`)
	position := decode[swept](t, run("sweep", "--from", "6c."+strings.Repeat(",0", tables-1), "--for", "1ns", "-o", "json")).Position
	contains(t, run("sweep", "--from", position).stdout, "no other row has expired")
	run("reset", "login", "alice")

	execute(t, admin, "SELECT create_reference_table('cli_doctor.limiter_overrides')") // for a worker
	worker, err := url.Parse(admin)
	must(t, err)
	conn, err := pgx.Connect(t.Context(), admin)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	err = conn.QueryRow(t.Context(), "SELECT node_name || ':' || node_port FROM citus_get_active_worker_nodes() LIMIT 1").Scan(&worker.Host)
	must(t, err)
	nothingFound(t, worker.String(), inSchema...)
}

// Plain tables on a coordinator work with a store without WithCitus. The test makes the catalogs of Citus
// that the doctor reads, so it needs no cluster.
func TestDoctorPlainCitus(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	db.exec(t, "SET allow_system_table_mods = on",
		`CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", partkey text, repmodel "char")`,
		"CREATE TABLE pg_catalog.pg_dist_local_group (groupid int)",
		"CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql AS 'SELECT $2'")
	nothingFound(t, db.url)
	contains(t, succeeds(t, db.url, "doctor").stdout, "Citus table limiter_token_buckets", "not distributed; the store of an application works without the option for Citus",
		"storage of limiter_token_buckets")
}
