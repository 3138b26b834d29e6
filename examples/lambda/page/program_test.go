package page_test

import (
	"bufio"
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var url = flag.String("url", "", "the `address` of a service for TestThePageOfTheProgram, instead of a program that the test starts")

// The assertions hold at any speed of the program's clock, and after any earlier requests.
func TestThePageOfTheProgram(t *testing.T) {
	t.Parallel()
	newTab(t) // without a browser there is nothing to start the program for
	address := *url
	if address == "" {
		address = start(t)
	}
	b := open(t, address)
	b.until("bar of each limit by address", func(s state) bool {
		var names []string
		for _, bar := range s.Bars {
			names = append(names, bar.Name)
		}
		slices.Sort(names)
		return slices.Equal(names, []string{"export-burst", "export-day", "login-address", "page", "search"})
	})

	b.click("search20")
	seen := b.until("tally of twenty responses", func(s state) bool { return sum(s.Tally) == 20 })
	i := slices.IndexFunc(seen.Log, func(a answer) bool { return a.Status == "429" })
	if i < 0 {
		t.Fatalf("none of twenty concurrent searches is refused:\n%s", seen)
	}
	if got := seen.Log[i]; !strings.HasSuffix(got.What, ": refused by search") || !slices.Equal(got.Lines, []string{"Retry-After: 1", `RateLimit: "search";r=0;t=1`}) {
		t.Errorf("the refusal reads %+v", got)
	}
	before := quota(t, seen, "search")
	b.until("refill of search", func(s state) bool { return quota(t, s, "search") > before })

	for _, step := range []struct {
		click, what string
		statuses    []string
	}{
		{"export", "Export", []string{"200", "429"}},
		{"wrong", "Log in, wrong password", []string{"401", "429"}},
		{"right", "Log in", []string{"200", "429"}},
	} {
		n := sum(b.state().Tally)
		b.click(step.click)
		seen := b.until("further response", func(s state) bool { return sum(s.Tally) == n+1 })
		if got := seen.Log[0]; !strings.HasPrefix(got.What, step.what) || !slices.Contains(step.statuses, got.Status) {
			t.Errorf("after a click on %s the log shows %+v", step.click, got)
		}
	}
}

// sum adds up a tally.
func sum(tally string) (total int) {
	for part := range strings.SplitSeq(tally, ", ") {
		count, _, _ := strings.Cut(part, " ")
		n, _ := strconv.Atoi(count)
		total += n
	}
	return total
}

// quota returns the remaining quota that a bar shows.
func quota(t *testing.T, s state, name string) int {
	t.Helper()
	left, _, _ := strings.Cut(s.bar(name).Text, " ")
	n, err := strconv.Atoi(left)
	if err != nil {
		t.Fatalf("the bar of %s says %q", name, s.bar(name).Text)
	}
	return n
}

// start builds and runs the example on an empty SQLite file, and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program.exe") // a name that every system runs
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	// The program outlives the tab. Otherwise the browser would report failed requests.
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	run := exec.CommandContext(ctx, program)
	run.Env = append(os.Environ(), "PORT=0", "DATABASE_URL=", "AWS_LAMBDA_RUNTIME_API=", "TRUSTED_HOPS=", "LIMITER_SQLITE="+filepath.Join(dir, "limiter.db"))
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	run.WaitDelay = testTimeout
	log, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	port := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(port)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				port <- found[1]
			} else {
				t.Log(lines.Text())
			}
		}
		_ = run.Wait() // that it was interrupted
		close(done)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	select {
	case p, ok := <-port:
		if !ok {
			t.Fatal("the program ended before it listened")
		}
		return "http://" + net.JoinHostPort("127.0.0.1", p)
	case <-time.After(testTimeout):
		t.Fatal("the program does not log its port")
	}
	return ""
}

// listening matches the log line with the program's port.
var listening = regexp.MustCompile(`listening url=http://localhost:(\d+)`)
