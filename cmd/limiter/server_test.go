//go:build unix

package main_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// server is a server of this machine that ends with the tests, even if these are killed.
type server struct {
	stdin io.Closer
	done  chan struct{}
	log   string
}

var servers struct {
	sync.Mutex
	stops []func()
}

func stopServers() {
	for _, stop := range slices.Backward(servers.stops) {
		stop()
	}
}

// startServer runs a server until the tests end, by a signal. It runs as another account if the tests run as root, which
// PostgreSQL and PgBouncer refuse.
func startServer(dir, signal string, env []string, args ...string) (*server, error) {
	// The shell ends the server when the test's end of its standard input closes.
	cmd := exec.Command("sh", append([]string{"-c", `"$@" & pid=$!; cat >/dev/null; kill -` + signal + ` $pid; wait $pid`, "sh"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	unprivileged(cmd)
	log, err := os.Create(filepath.Join(dir, filepath.Base(args[0])+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{stdin, make(chan struct{}), log.Name()}
	go func() { _ = cmd.Wait(); close(s.done) }()
	return s, nil
}

func (s *server) stop() {
	s.stdin.Close()
	<-s.done
}

// unprivileged makes a command run as postgres or nobody if this process is root's.
func unprivileged(cmd *exec.Cmd) {
	if os.Getuid() != 0 {
		return
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(account()), Gid: uint32(account())}}
}

func account() int {
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			id, _ := strconv.Atoi(found.Uid)
			return id
		}
	}
	return 65534
}

// unavailable skips a test that lacks what, unless LIMITER_TEST_REQUIRE asks for it.
func unavailable(t *testing.T, what string, reason error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("LIMITER_TEST_REQUIRE"), ","), what) {
		t.Fatalf("LIMITER_TEST_REQUIRE asks for %s: %v", what, reason)
	}
	t.Skipf("no %s: %v", what, reason)
}

// serverDir makes a directory that a server may write to.
func serverDir() (string, error) {
	dir, err := os.MkdirTemp("", "limiter-cli-server-")
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(dir, account(), account())
	}
	return dir, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// cluster is a PostgreSQL of this host.
type cluster struct{ dir, bin, port string }

// superuser starts the PostgreSQL that all tests share, once, and returns the URL of its superuser.
var superuser = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN"); dsn != "" {
		return dsn, nil
	}
	c, err := initCluster()
	if err != nil {
		return "", err
	}
	return c.start()
})

// initCluster makes a cluster.
func initCluster() (*cluster, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil && len(found) == 0 {
		found = []string{path}
	}
	if len(found) == 0 {
		return nil, exec.ErrNotFound
	}
	dir, err := serverDir()
	if err != nil {
		return nil, err
	}
	servers.Lock()
	servers.stops = append(servers.stops, func() { os.RemoveAll(dir) })
	servers.Unlock()
	c := &cluster{dir: dir, bin: filepath.Dir(found[len(found)-1])}
	cmd := exec.Command(filepath.Join(c.bin, "initdb"), "--pgdata="+dir+"/data", "--username=postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir = dir
	unprivileged(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	c.port, err = freePort()
	return c, err
}

// start starts the cluster and returns the URL of the superuser.
func (c *cluster) start(env ...string) (string, error) {
	s, err := startServer(c.dir, "QUIT", env, filepath.Join(c.bin, "postgres"), "-D", c.dir+"/data", "-p", c.port,
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
		"-c", "full_page_writes=off", "-c", "max_connections=100", "-c", "shared_buffers=32MB")
	if err != nil {
		return "", err
	}
	servers.Lock()
	servers.stops = append(servers.stops, s.stop)
	servers.Unlock()
	url := "postgres://postgres@127.0.0.1:" + c.port + "/postgres?sslmode=disable"
	return url, await(s, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	})
}

// await waits until a server answers.
func await(s *server, answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-s.done:
		case <-retry.C:
			continue
		}
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("the server does not answer: %w\n%s", err, text)
	}
}

// emptyPostgres makes a database on the shared server for this test, and returns its URL.
func emptyPostgres(t *testing.T) string {
	t.Helper()
	admin, err := superuser()
	if err != nil {
		unavailable(t, "postgres", err)
	}
	return createDatabase(t, admin)
}

func createDatabase(t *testing.T, admin string) string {
	t.Helper()
	name := fmt.Sprintf("cli_%d_%d", os.Getpid(), time.Now().UnixNano())
	execute(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	return withDatabase(t, admin, name)
}

func withDatabase(t *testing.T, dsn, name string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// execute runs statements on a PostgreSQL, as one simple query each.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.PgConn().Exec(ctx, s).ReadAll(); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// target is a database with all tables.
type target struct {
	url   string
	store limiter.Store
	exec  func(t *testing.T, statements ...string)
}

// migratedPostgres returns a PostgreSQL with all tables.
func migratedPostgres(t *testing.T) target {
	t.Helper()
	url := emptyPostgres(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Up(t.Context(), migrations.Postgres, db); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return target{url, store, func(t *testing.T, statements ...string) { t.Helper(); execute(t, url, statements...) }}
}

// migratedSQLite returns a SQLite file with all tables.
func migratedSQLite(t *testing.T) target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	store, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := migrations.Up(t.Context(), migrations.SQLite, store.DB()); err != nil {
		t.Fatal(err)
	}
	return target{"sqlite:" + path, store, func(t *testing.T, statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := store.DB().ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}}
}

// onBoth runs a test on PostgreSQL and on SQLite.
func onBoth(t *testing.T, f func(t *testing.T, db target)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, migratedPostgres(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, migratedSQLite(t)) })
}

// use takes n from a key.
func use(t *testing.T, store limiter.Store, name string, p limiter.Policy, key string, n int64, opts ...limiter.Option) {
	t.Helper()
	l, err := limiter.New(store, name, p, append([]limiter.Option{limiter.WithTimeout(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := l.AllowN(t.Context(), key, n); err != nil || !res.Allowed {
		t.Fatalf("AllowN: %+v, %v", res, err)
	}
}

// bucket and window are policies that lose nothing while a test runs.
var (
	bucket = limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: 24 * time.Hour}
	window = limiter.FixedWindow{Limit: 10, Window: 365 * 24 * time.Hour}
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
