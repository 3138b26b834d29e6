package main

import (
	"database/sql"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
)

// recordings is the directory of the recorded events of package awslambda.
var recordings = filepath.Join("..", "..", "handler", "awslambda", "testdata")

// recorded reads a recorded event.
func recorded(tb testing.TB, path ...string) []byte {
	tb.Helper()
	event, err := os.ReadFile(filepath.Join(path...))
	must(tb, err)
	return event
}

// request returns the recorded HTTP request of a file with another method, path and body.
func request(tb testing.TB, file, method, path, body string) []byte {
	tb.Helper()
	var event map[string]any
	must(tb, json.Unmarshal(recorded(tb, recordings, file), &event))
	about := event["requestContext"].(map[string]any)
	if http, ok := about["http"].(map[string]any); ok { // an HTTP API or a function URL
		event["rawPath"], event["rawQueryString"] = path, ""
		http["path"], http["method"] = path, method
	} else {
		event["path"], event["httpMethod"] = path, method
	}
	event["body"], event["isBase64Encoded"] = body, false
	edited, err := json.Marshal(event)
	must(tb, err)
	return edited
}

// TestProgram runs the binary as Lambda and Cloud Run do.
func TestProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds the program")
	}
	if runtime.GOOS == "windows" {
		t.Skip("neither Lambda nor Cloud Run is Windows, and there are no signals")
	}
	binary := build(t, ".")
	for name, test := range map[string]func(*testing.T, string){
		"limits the four kinds of HTTP events":   limitsTheFourKinds,
		"sweeps at scheduled events":             sweepsOnSchedule,
		"fails on unknown events":                failsOnUnknownEvents,
		"responds before the deadline":           answersBeforeTheDeadline,
		"sweeps with the argument sweep":         sweepsByArgument,
		"finishes requests in flight at SIGTERM": drainsAtSIGTERM,
		"leaves no connections behind":           closesItsConnections,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, binary)
		})
	}
}

// startFunction starts the program as a Lambda function.
func startFunction(t *testing.T, binary string, env map[string]string) (*runtimeAPI, *process) {
	t.Helper()
	api := newRuntimeAPI(t)
	env["AWS_LAMBDA_RUNTIME_API"] = api.address
	return api, launch(t, binary, env)
}

func limitsTheFourKinds(t *testing.T, binary string) {
	for _, c := range []struct {
		file        string
		multiValue  bool
		description string
	}{
		{"rest.json", true, ""},
		{"httpapi.json", false, ""},
		{"functionurl.json", false, ""},
		{"alb.json", false, "429 Too Many Requests"},
		{"alb-multivalue.json", true, "429 Too Many Requests"},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			api, p := startFunction(t, binary, map[string]string{"LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
			event := request(t, c.file, http.MethodGet, "/search", "")
			first := api.ask(t, p, event)
			if first.StatusCode != http.StatusOK || !strings.Contains(first.Body, `"found"`) {
				t.Fatalf("the first response is %+v", first)
			}
			if got := first.header("Ratelimit-Policy"); got != `"search";q=10;w=10` {
				t.Errorf("RateLimit-Policy: %s", got)
			}
			if got := first.header("Ratelimit"); got != `"search";r=9;t=1` {
				t.Errorf("RateLimit: %s", got)
			}
			refused := first
			for n := 1; refused.StatusCode == http.StatusOK; n++ {
				if n == 100 {
					t.Fatal("a hundred requests were allowed")
				}
				refused = api.ask(t, p, event)
			}
			if refused.StatusCode != http.StatusTooManyRequests || refused.header("Retry-After") != "1" ||
				refused.header("Content-Type") != "application/problem+json" {
				t.Errorf("the refusal is %+v", refused)
			}
			if got := refused.MultiValueHeaders != nil; got != c.multiValue || refused.StatusDescription != c.description {
				t.Errorf("lists of values: %t, status description: %q; want %t, %q", got, refused.StatusDescription, c.multiValue, c.description)
			}
		})
	}
}

// expired uses n keys three hours ago, so all of their rows have expired.
func expired(t *testing.T, store limiter.Store, n int) {
	t.Helper()
	l, err := limiter.New(store, "search", policies["search"],
		limiter.WithClock(func() time.Time { return time.Now().Add(-3 * time.Hour) }))
	must(t, err)
	for i := range n {
		must(t, testenv.ErrorOf(l.Allow(t.Context(), string(rune('a'+i)))))
	}
}

// fileStore returns a store on a migrated SQLite file, which the program can share.
func fileStore(t *testing.T) (path string, store *sqlite.Store) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "limiter.db")
	store, err := sqlite.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
	return path, store
}

func sweepsOnSchedule(t *testing.T, binary string) {
	path, store := fileStore(t)
	api, p := startFunction(t, binary, map[string]string{"LIMITER_SQLITE": path})
	for _, event := range [][]byte{recorded(t, recordings, "other-scheduled.json"), recorded(t, "testdata", "scheduler.json")} {
		expired(t, store, 3)
		for _, want := range []string{`{"removed":3}`, `{"removed":0}`} {
			if o := api.invoke(t, p, event, testTimeout); o.error || string(o.body) != want {
				t.Errorf("%s: %s (an error: %t), want %s", event, o.body, o.error, want)
			}
		}
	}
}

func sweepsByArgument(t *testing.T, binary string) {
	path, store := fileStore(t)
	expired(t, store, 2)
	p := launch(t, binary, map[string]string{"LIMITER_SQLITE": path}, "sweep")
	p.wait(t)
	if p.err != nil || p.output.String() != `{"removed":2}`+"\n" {
		t.Errorf("sweep: %v, %s", p.err, &p.output)
	}
	p = launch(t, binary, map[string]string{"LIMITER_SQLITE": path}, "swep")
	p.wait(t)
	if p.err == nil || !strings.Contains(p.output.String(), "pass sweep or none") {
		t.Errorf("swep: %v, %s", p.err, &p.output)
	}
}

func failsOnUnknownEvents(t *testing.T, binary string) {
	api, p := startFunction(t, binary, map[string]string{"LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
	for _, event := range []string{string(recorded(t, recordings, "other-websocket.json")), `{"detail-type": "Object Created"}`, `{}`} {
		if o := api.invoke(t, p, []byte(event), testTimeout); !o.error || !strings.Contains(string(o.body), errUnknownEvent.Error()) {
			t.Errorf("%s: %s (an error: %t), want %v", event, o.body, o.error, errUnknownEvent)
		}
	}
	if r := api.ask(t, p, request(t, "httpapi.json", http.MethodGet, "/search", "")); r.StatusCode != http.StatusOK {
		t.Errorf("after unknown events the response is %+v", r)
	}
}

func answersBeforeTheDeadline(t *testing.T, binary string) {
	// The system accepts connections for this server, which never sends a byte.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	api, p := startFunction(t, binary, map[string]string{"DATABASE_URL": "postgres://user@" + silent.Addr().String() + "/db?sslmode=disable"})
	event := request(t, "httpapi.json", http.MethodGet, "/search", "")
	for _, within := range []time.Duration{time.Second, 15 * time.Second} {
		deadline := time.Now().Add(within)
		o := api.invoke(t, p, event, within)
		var r response
		if err := json.Unmarshal(o.body, &r); err != nil || r.StatusCode != http.StatusServiceUnavailable || r.header("Retry-After") != "1" {
			t.Errorf("within %v: %s, %v; want 503 with Retry-After", within, o.body, err)
		}
		if late := o.at.Sub(deadline); late > 0 {
			t.Errorf("within %v: the response came %v after the deadline", within, late)
		}
	}
}

func closesItsConnections(t *testing.T, binary string) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		dsn, db := migrated(t, server)
		api, p := startFunction(t, binary, map[string]string{"DATABASE_URL": dsn + "&application_name=bootstrap"})
		connections := func() (n int) {
			must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bootstrap'`).Scan(&n))
			return n
		}
		<-api.asked
		if n := connections(); n != 0 {
			t.Errorf("%d connections before the first event, want none", n)
		}
		if r := api.ask(t, p, request(t, "functionurl.json", http.MethodGet, "/search", "")); r.StatusCode != http.StatusOK {
			t.Errorf("the response is %+v", r)
		}
		if n := connections(); n != 1 {
			t.Errorf("%d connections after it, want 1", n)
		}
		must(t, p.Process.Signal(syscall.SIGTERM))
		p.await(t, "connections are left after SIGTERM", func() bool { return connections() == 0 })
	})
}

// migrated returns a database with the tables.
func migrated(t *testing.T, server *dbtest.Server) (dsn string, db *sql.DB) {
	t.Helper()
	dsn = server.Database(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, migrations.Up(t.Context(), migrations.Postgres, db))
	return dsn, db
}
