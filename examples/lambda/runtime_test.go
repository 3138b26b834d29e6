package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testTimeout bounds everything that a test waits for.
const testTimeout = 30 * time.Second

// build builds the program as in the README, but for this machine.
func build(tb testing.TB, source string) (binary string) {
	tb.Helper()
	binary = filepath.Join(tb.TempDir(), "bootstrap")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-tags", "lambda.norpc", "-trimpath", "-ldflags=-s -w", "-o", binary, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// process is a running program.
type process struct {
	*exec.Cmd
	started time.Time
	ended   chan struct{}
	err     error  // of Wait; valid once ended is closed
	log     string // file that the program writes to
}

// output returns what the program has written so far.
func (p *process) output() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// launch starts a program with env as its environment. The end of the test kills it.
func launch(tb testing.TB, binary string, env map[string]string, args ...string) *process {
	tb.Helper()
	p := &process{Cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.Env = []string{"HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	for name, value := range env {
		p.Env = append(p.Env, name+"="+value)
	}
	p.log = filepath.Join(tb.TempDir(), "log")
	file, err := os.Create(p.log)
	must(tb, err)
	defer file.Close()
	p.Stdout, p.Stderr = file, file
	p.started = time.Now()
	must(tb, p.Start())
	go func() {
		p.err = p.Wait()
		close(p.ended)
	}()
	tb.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// wait waits until the process has ended by itself.
func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testTimeout):
		t.Fatalf("the process does not end\n%s", p.output())
	}
}

// await waits until come returns true. Otherwise it fails the test with the given text.
func (p *process) await(t *testing.T, otherwise string, come func() bool) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(testTimeout); !come(); <-again.C {
		select {
		case <-p.ended:
			t.Fatalf("%s; the process ended: %v\n%s", otherwise, p.err, p.output())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s\n%s", otherwise, p.output())
		}
	}
}

// runtimeAPI is a Lambda Runtime API on loopback, for a bootstrap to poll.
// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
type runtimeAPI struct {
	address string
	asked   chan time.Time  // when the process polls for an event
	events  chan invocation // the events for the process
	answers chan outcome    // the results that the process posts
	last    int
}

type invocation struct {
	id       string
	event    []byte
	deadline time.Time
}

// outcome is the result of an event.
type outcome struct {
	id    string
	body  []byte
	error bool
	at    time.Time
}

func newRuntimeAPI(tb testing.TB) *runtimeAPI {
	a := &runtimeAPI{asked: make(chan time.Time, 100), events: make(chan invocation), answers: make(chan outcome, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", a.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/{kind}", a.answer)
	mux.HandleFunc("POST /2020-01-01/extension/register", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Lambda-Extension-Identifier", "extension-1")
		_, _ = io.WriteString(w, "{}")
	})
	mux.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // there are no events for the extension
	})
	server := httptest.NewServer(mux)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	a.address = strings.TrimPrefix(server.URL, "http://")
	return a
}

func (a *runtimeAPI) next(w http.ResponseWriter, r *http.Request) {
	a.asked <- time.Now()
	select {
	case i := <-a.events:
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", i.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(i.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-central-1:123456789012:function:limiter")
		h.Set("Lambda-Runtime-Trace-Id", "Root=1-5e1b4151-43a0913a12345678901234567;Sampled=0")
		_, _ = w.Write(i.event)
	case <-r.Context().Done():
	}
}

func (a *runtimeAPI) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	failed := err != nil || r.PathValue("kind") != "response"
	a.answers <- outcome{r.PathValue("id"), body, failed, time.Now()}
	w.WriteHeader(http.StatusAccepted)
}

// invoke sends an event to the process and waits for the outcome.
func (a *runtimeAPI) invoke(tb testing.TB, p *process, event []byte, within time.Duration) outcome {
	tb.Helper()
	a.last++
	i := invocation{fmt.Sprintf("request-%d", a.last), event, time.Now().Add(within)}
	timeout := time.After(testTimeout)
	select {
	case a.events <- i:
	case <-p.ended:
		tb.Fatalf("the process ended: %v\n%s", p.err, p.output())
	case <-timeout:
		tb.Fatalf("the process does not poll for an event\n%s", p.output())
	}
	select {
	case o := <-a.answers:
		if o.id != i.id {
			tb.Fatalf("the response is to %s, want one to %s", o.id, i.id)
		}
		return o
	case <-p.ended:
		tb.Fatalf("the process ended: %v\n%s", p.err, p.output())
	case <-timeout:
		tb.Fatalf("no response\n%s", p.output())
	}
	panic("not reached")
}

// response has the fields of all four kinds of responses.
type response struct {
	StatusCode        int                 `json:"statusCode"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Body              string              `json:"body"`
}

// header returns the value of a header, which the kinds of responses keep in one of two places.
func (r response) header(name string) string {
	if lines := r.MultiValueHeaders[name]; len(lines) > 0 {
		return strings.Join(lines, ", ")
	}
	return r.Headers[name]
}

// ask is invoke for an HTTP request. The outcome must be a response.
func (a *runtimeAPI) ask(tb testing.TB, p *process, event []byte) (r response) {
	tb.Helper()
	o := a.invoke(tb, p, event, testTimeout)
	if o.error {
		tb.Fatalf("the function failed: %s\n%s", o.body, p.output())
	}
	if err := json.Unmarshal(o.body, &r); err != nil {
		tb.Fatalf("%s: %v", o.body, err)
	}
	return r
}
