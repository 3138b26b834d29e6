package page

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var screenshot = flag.String("screenshot", "", "the `file` to which TestPage writes a picture of the page")

// showsProgram shows the page of the program itself. Its clock runs, so the test claims little of the numbers.
// This command updates the picture of the README:
//
//	go test ./examples/lambda/page -run TestPage/all/.*program -screenshot screenshot.png
func showsProgram(b *tab) {
	b.do(chromedp.Navigate(start(b.t)))
	b.do(chromedp.EmulateViewport(1000, 790, chromedp.EmulateScale(2)))
	b.until(`[...document.querySelectorAll(".name")].map((e) => e.textContent).sort().join()`, "export-burst,export-day,login-address,page,search")
	const sum = `String(document.getElementById("tally").textContent.split(", ").reduce((n, part) => n + parseInt(part), 0))`
	b.click("search20", sum, "20")
	log := strings.Split(eval[string](b, entries+`.sort().join("\n")`), "\n")
	if len(log) != 2 || !strings.HasPrefix(log[0], "200; Search × ") || !strings.HasSuffix(log[1], `: refused by search; Retry-After: 1; RateLimit: "search";r=0;t=1`) {
		b.t.Errorf("after 20 searches at once the log has %q, want searches that pass and others that are refused", log)
	}
	b.click("export", sum, "21")
	b.click("wrong", sum, "22")
	b.click("right", sum, "23")
	if got := eval[string](b, entries+`.slice(0, 3).join("\n")`); !strings.HasPrefix(got, "200; Log in\n401; Log in, wrong password: failed\n200; Export; RateLimit: \"export-burst\";r=2;") {
		b.t.Errorf("after an export and two logins the log has\n%s", got)
	}
	if *screenshot == "" {
		return
	}
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(*screenshot, shot, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// listening matches the log line with the program's port.
var listening = regexp.MustCompile(`listening url=http://localhost:(\d+)`)

// start builds and runs the example on an empty SQLite file, and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program.exe") // a name that every system runs
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	// The program outlives the tab. Otherwise the browser would report failed requests.
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
	run := exec.CommandContext(ctx, program)
	run.Env = append(os.Environ(), "PORT=0", "DATABASE_URL=", "AWS_LAMBDA_RUNTIME_API=", "TRUSTED_HOPS=", "LIMITER_SQLITE="+filepath.Join(dir, "limiter.db"))
	log, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = run.Wait() // that it was killed
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			return "http://127.0.0.1:" + found[1]
		}
	}
	t.Fatal("the program ended before it listened")
	return ""
}
