package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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

func startFunction(t *testing.T, binary string, env map[string]string) (*runtimeAPI, *process) {
	t.Helper()
	api := newRuntimeAPI(t)
	env["AWS_LAMBDA_RUNTIME_API"] = api.address
	return api, launch(t, binary, env)
}

func limitsTheFourKinds(t *testing.T, binary string) {
	for _, file := range []string{"rest.json", "httpapi.json", "functionurl.json", "alb.json", "alb-multivalue.json"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			api, p := startFunction(t, binary, map[string]string{"LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
			event := request(t, file, http.MethodGet, "/search", "")
			first := api.ask(t, p, event)
			if first.StatusCode != http.StatusOK || !strings.Contains(first.Body, `"found"`) ||
				first.header("Ratelimit-Policy") != `"search";q=10;w=10` || first.header("Ratelimit") != `"search";r=9;t=1` {
				t.Fatalf("the first response is %+v", first)
			}
			last := first
			for n := 0; n < 100 && last.StatusCode == http.StatusOK; n++ {
				last = api.ask(t, p, event)
			}
			if last.StatusCode != http.StatusTooManyRequests || last.header("Retry-After") != "1" || last.header("Content-Type") != "application/problem+json" {
				t.Errorf("the refusal is %+v", last)
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
			o := api.invoke(t, p, event, testTimeout)
			testenv.Equal(t, []any{o.error, string(o.body)}, []any{false, want}, "an error, and the body")
		}
	}
}

func sweepsByArgument(t *testing.T, binary string) {
	path, store := fileStore(t)
	expired(t, store, 2)
	for arg, want := range map[string]string{"sweep": `{"removed":2}` + "\n", "swep": "pass sweep or none"} {
		p := launch(t, binary, map[string]string{"LIMITER_SQLITE": path}, arg)
		p.wait(t)
		if (p.err == nil) != (arg == "sweep") || !strings.Contains(p.output(), want) {
			t.Errorf("%s: %v, %s; want %s", arg, p.err, p.output(), want)
		}
	}
}

func failsOnUnknownEvents(t *testing.T, binary string) {
	api, p := startFunction(t, binary, map[string]string{"LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
	for _, event := range []string{string(recorded(t, recordings, "other-websocket.json")), `{"detail-type": "Object Created"}`, `{}`} {
		if o := api.invoke(t, p, []byte(event), testTimeout); !o.error || !strings.Contains(string(o.body), errUnknownEvent.Error()) {
			t.Errorf("%s: %s (an error: %t), want %v", event, o.body, o.error, errUnknownEvent)
		}
	}
	testenv.Equal(t, api.ask(t, p, request(t, "httpapi.json", http.MethodGet, "/search", "")).StatusCode, http.StatusOK, "after unknown events")
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
		testenv.Equal(t, connections(), 0, "connections before the first event")
		testenv.Equal(t, api.ask(t, p, request(t, "functionurl.json", http.MethodGet, "/search", "")).StatusCode, http.StatusOK, "the first event")
		testenv.Equal(t, connections(), 1, "connections after it")
		must(t, p.Process.Signal(syscall.SIGTERM))
		p.await(t, "connections are left after SIGTERM", func() bool { return connections() == 0 })
	})
}

func migrated(t *testing.T, server *dbtest.Server) (dsn string, db *sql.DB) {
	t.Helper()
	dsn = server.Database(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, migrations.Up(t.Context(), migrations.Postgres, db))
	return dsn, db
}

func drainsAtSIGTERM(t *testing.T, binary string) {
	p := launch(t, binary, map[string]string{"PORT": "0", "LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
	var address string
	said := regexp.MustCompile(`listening url=http://localhost:(\d+)`)
	p.await(t, "the server does not listen", func() bool {
		if m := said.FindStringSubmatch(p.output()); m != nil {
			address = net.JoinHostPort("127.0.0.1", m[1])
		}
		return address != ""
	})
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(testTimeout)))

	const form = "user=alice&password=open+sesame"
	must(t, testenv.ErrorOf(io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
		"Expect: 100-continue\r\nContent-Length: 31\r\n\r\n")))
	// The server sends 100 when the handler reads the body: the request is in flight.
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	buf := make([]byte, len(goOn))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != goOn {
		t.Fatalf("%q, %v\n%s", buf, err, p.output())
	}
	must(t, p.Process.Signal(syscall.SIGTERM))
	p.await(t, "the server still takes connections", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	must(t, testenv.ErrorOf(io.WriteString(conn, form)))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") || !strings.Contains(string(answer), `{"welcome":"alice"}`) {
		t.Errorf("the response to the request in flight is %q, %v", answer, err)
	}
	p.wait(t)
	testenv.ErrorIs(t, p.err, nil, "the process ended", p.output())
}

// BenchmarkColdStart takes turns with a function that does nothing. The difference is the program's share.
func BenchmarkColdStart(b *testing.B) {
	hello, program := build(b, "./testdata/hello"), build(b, ".")
	recorded := string(request(b, "httpapi.json", http.MethodGet, "/search", ""))
	for _, name := range []string{"migrated file", "new file"} {
		b.Run(name, func(b *testing.B) {
			files, n := b.TempDir(), 0
			// start adds the time from exec to the first poll for an event, and from that event to the response.
			start := func(binary string, init, event *time.Duration) {
				b.Helper()
				n++
				file := "one.db"
				if name == "new file" {
					file = fmt.Sprintf("%d.db", n)
				}
				api := newRuntimeAPI(b)
				p := launch(b, binary, map[string]string{"LIMITER_SQLITE": filepath.Join(files, file), "AWS_LAMBDA_RUNTIME_API": api.address})
				asked, given := <-api.asked, time.Now()
				// The limit would soon refuse a single client.
				address := fmt.Sprintf(`"10.0.%d.%d"`, n/256, n%256)
				o := api.invoke(b, p, []byte(strings.ReplaceAll(recorded, `"192.0.2.1"`, address)), testTimeout)
				if o.error || !strings.Contains(string(o.body), `"statusCode":200`) {
					b.Fatalf("%s\n%s", o.body, p.output())
				}
				p.kill()
				*init, *event = *init+asked.Sub(p.started), *event+o.at.Sub(given)
			}
			var init, event, helloInit, helloEvent, ignored time.Duration
			start(program, &ignored, &ignored) // reads the binary into memory, and migrates
			for b.Loop() {
				start(program, &init, &event)
				start(hello, &helloInit, &helloEvent)
			}
			for unit, d := range map[string]time.Duration{
				"ms-init": init, "ms-first-event": event, "ms-hello": helloInit + helloEvent, "ms-own": init + event - helloInit - helloEvent,
			} {
				b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), unit)
			}
			b.ReportMetric(0, "ns/op") // it would be that of two processes
		})
	}
}
