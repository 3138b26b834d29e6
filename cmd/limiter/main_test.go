//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	program "github.com/sqlimit/limiter/cmd/limiter"
	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

var (
	must     = testenv.Must
	contains = testenv.Contains
)

// asProgram is set in the environment of a process that runs the program instead of the tests. So
// the test binary has the program in it, and a cached result never hides a change.
const asProgram = "LIMITER_TEST_AS_PROGRAM=1"

func TestMain(m *testing.M) {
	if slices.Contains(os.Environ(), asProgram) {
		program.Main()
	}
	code := m.Run()
	if shared != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

type answer struct {
	stdout, stderr string
	code           int
}

// command returns a run of the program on a database, with nothing from the test's environment that
// could lead to another one.
func command(ctx context.Context, url string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = []string{asProgram, "PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TERM=xterm-256color"}
	if url != "" {
		cmd.Env = append(cmd.Env, "DATABASE_URL="+url)
	}
	return cmd
}

func limiterCLI(t *testing.T, url string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := command(ctx, url, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	a := answer{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	for _, out := range []string{a.stdout, a.stderr} {
		if i := strings.IndexFunc(out, isControl); i >= 0 {
			t.Errorf("limiter %q printed the control character %q", args, out[i:i+1])
		}
		testenv.Equal(t, strings.Contains(out, "hunter2"), false, "limiter", args, "printed the password:", out)
		if word := goWords.FindString(out); a.code != 0 && word != "" {
			t.Errorf("limiter %q printed a word of Go, %q:\n%s", args, word, out)
		}
	}
	return a
}

// goWords are words of Go code. The user of the command writes commands and flags.
var goWords = regexp.MustCompile(`migrations\.|\bctx\b|WithSchema|WithCitus|WithQueryExecMode|TokenBucket|FixedWindow`)

func isControl(r rune) bool {
	return r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e)
}

// succeeds runs the program and wants exit code 0.
func succeeds(t *testing.T, url string, args ...string) answer {
	t.Helper()
	a := limiterCLI(t, url, args...)
	if a.code != 0 {
		t.Fatalf("limiter %q: exit code %d\n%s%s", args, a.code, a.stdout, a.stderr)
	}
	return a
}

// fails runs the program and wants an exit code, and texts on standard error.
func fails(t *testing.T, url string, code int, texts []string, args ...string) {
	t.Helper()
	a := limiterCLI(t, url, args...)
	testenv.Equal(t, a.code, code, "limiter", args, a.stdout, a.stderr)
	contains(t, a.stderr, texts...)
}

// decode reads JSON with exactly the fields of T.
func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(a.stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s%s", err, a.stdout, a.stderr)
	}
	return v
}

// shared is the PostgreSQL that superuser started, or nil.
var shared *daemon.Postgres

// clusterSettings give up durability for speed: the tests delete the data.
var clusterSettings = []string{"fsync=off", "full_page_writes=off", "max_connections=100", "shared_buffers=32MB"}

// superuser starts the PostgreSQL that all tests share, once, and returns the URL of its superuser.
var superuser = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN"); dsn != "" {
		return dsn, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := daemon.StartPostgres(ctx, "", clusterSettings...)
	if err != nil {
		return "", err
	}
	shared = p
	return p.DSN, nil
})

// emptyPostgres makes a database on the shared server for this test, and returns its URL.
func emptyPostgres(t *testing.T) string {
	t.Helper()
	testenv.SkipShort(t)
	admin, err := superuser()
	if err != nil {
		testenv.Unavailable(t, "postgres", err)
	}
	name := fmt.Sprintf("cli_%d_%d", os.Getpid(), time.Now().UnixNano())
	execute(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	for _, setting := range []string{"bytea_output = 'escape'", "DateStyle = 'SQL, DMY'", "TimeZone = 'Asia/Tokyo'"} { // they change no output
		execute(t, admin, "ALTER DATABASE "+name+" SET "+setting)
	}
	u, err := url.Parse(admin)
	must(t, err)
	u.Path = "/" + name
	return u.String()
}

// execute runs statements on a PostgreSQL, as one simple query each.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	must(t, err)
	defer conn.Close(ctx)
	for _, s := range statements {
		must(t, testenv.ErrorOf(conn.PgConn().Exec(ctx, s).ReadAll()))
	}
}

type target struct {
	url   string
	store limiter.Store
	exec  func(t *testing.T, statements ...string)
}

func migratedPostgres(t *testing.T) target {
	t.Helper()
	url := emptyPostgres(t)
	succeeds(t, url, "migrate", "up")
	store, err := postgres.Open(url)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	return target{url, store, func(t *testing.T, statements ...string) { t.Helper(); execute(t, url, statements...) }}
}

func migratedSQLite(t *testing.T) target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	store, err := sqlite.Open(path)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
	return target{"sqlite:" + path, store, func(t *testing.T, statements ...string) {
		t.Helper()
		for _, s := range statements {
			must(t, testenv.ErrorOf(store.DB().ExecContext(t.Context(), s)))
		}
	}}
}

func onBoth(t *testing.T, f func(t *testing.T, db target)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, migratedPostgres(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, migratedSQLite(t)) })
}

func use(t *testing.T, store limiter.Store, name string, p limiter.Policy, key string, n int64, opts ...limiter.Option) {
	t.Helper()
	l, err := limiter.New(store, name, p, append([]limiter.Option{limiter.WithTimeout(10 * time.Second)}, opts...)...)
	must(t, err)
	if res, err := l.AllowN(t.Context(), key, n); err != nil || !res.Allowed {
		t.Fatalf("AllowN: %+v, %v", res, err)
	}
}

// bucket and window are policies that lose nothing while a test runs.
var (
	bucket = limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 24 * time.Hour}
	window = limiter.FixedWindow{Limit: 10, Window: 365 * 24 * time.Hour}

	slidingWindow = limiter.SlidingWindow{Limit: 10, Window: 24 * time.Hour}
)

// newRole makes a role that may do nothing but what grants allow, and returns its URL. %s in a grant
// stands for its name.
func newRole(t *testing.T, db target, grants ...string) string {
	t.Helper()
	name := fmt.Sprintf("cli_role_%d", time.Now().UnixNano())
	db.exec(t, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { db.exec(t, "DROP OWNED BY "+name, "DROP ROLE "+name) })
	for _, g := range grants {
		db.exec(t, fmt.Sprintf(g, name))
	}
	at := strings.Index(db.url, "@")
	return "postgres://" + name + ":secret" + db.url[at:]
}
