package page_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(browsing{m})
}

// browsing runs the tests and then stops the browser.
type browsing struct{ *testing.M }

func (b browsing) Run() int {
	defer func() { stopBrowser() }()
	return b.M.Run()
}

// testTimeout bounds everything that a test waits for.
const testTimeout = time.Minute

var (
	errNoBrowser = errors.New("none of chromium, chromium-browser and google-chrome is installed")
	stopBrowser  = func() {}
)

// browser starts Chromium once, at the first call, with a profile in a temporary directory.
// Each test has its own window and cookies.
var browser = sync.OnceValues(func() (context.Context, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errNoBrowser
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox does not run as root
	}
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	stopBrowser = func() {
		closing, done := context.WithTimeout(ctx, testTimeout)
		_ = chromedp.Cancel(closing) // kills the browser if it does not close
		done()
		release()
	}
	// A deadline of ctx would end the browser, so a timer bounds the start.
	late := time.AfterFunc(testTimeout, cancel)
	defer late.Stop()
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return ctx, nil
})

// tab is a window of the browser that shows the page.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// open opens the URL in a new tab. The test fails if the page writes to the console, where
// the browser reports exceptions and violations of the content security policy.
func open(t *testing.T, url string) *tab {
	t.Helper()
	b := newTab(t)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		for _, problem := range b.console() {
			t.Errorf("the console of the browser has: %s", problem)
		}
	})
	b.visit(url)
	return b
}

func newTab(t *testing.T) *tab {
	t.Helper()
	parent, err := browser()
	if errors.Is(err, errNoBrowser) {
		testenv.Unavailable(t, "chromium", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, stop := context.WithTimeout(ctx, testTimeout)
	t.Cleanup(stop)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	b.emulate("light")
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchTimers})
	return b
}

func (b *tab) visit(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// watchTimers records the pending timers of a page.
const watchTimers = `{
	const set = setTimeout, clear = clearTimeout;
	window.pending = new Map();
	window.setTimeout = (f, ms) => {
		const id = set(() => { pending.delete(id); f(); }, ms);
		pending.set(id, ms);
		return id;
	};
	window.clearTimeout = (id) => { pending.delete(id); clear(id); };
}`

// emulate sets the color scheme and turns motion off, so changes are visible at once.
func (b *tab) emulate(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// hear records the messages that a correct page does not cause. The browser itself logs
// responses with an error status, which the tests expect.
func (b *tab) hear(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			problem += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		problem = "console." + string(e.Type)
	case *log.EventEntryAdded:
		if e.Entry.Source == "network" && slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(e.Entry.Text, s) }) {
			return
		}
		problem = fmt.Sprintf("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

var expected = []string{"a status of 401", "a status of 429", "a status of 503", "net::ERR_EMPTY_RESPONSE"}

// console returns the messages that hear recorded.
func (b *tab) console() []string {
	b.t.Helper()
	eval[int](b, "1") // the browser sends earlier messages before this result
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// click clicks the button with an ID.
func (b *tab) click(id string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS("#" + id)))
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}
