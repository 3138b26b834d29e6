package page

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sqlimit/limiter/internal/testenv"
)

// testTimeout bounds everything that a test waits for.
const testTimeout = time.Minute

// TestPage starts Chromium once. Each subtest has its own window and cookies.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes seconds to start")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox does not run as root
	}
	ctx, release := chromedp.NewExecAllocator(context.Background(), options...)
	defer release()
	ctx, cancel := chromedp.NewContext(ctx)
	defer cancel()
	// A deadline of ctx would end the browser, so a timer bounds the start.
	late := time.AfterFunc(testTimeout, cancel)
	err := chromedp.Do(ctx)
	if late.Stop(); errors.Is(err, exec.ErrNotFound) {
		testenv.Unavailable(t, "chromium", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*tab){
			"bars show the fields":             barsShow,
			"the log shows responses":          logShows,
			"it polls while a bar is not full": polls,
			"it fits a phone and a keyboard":   fits,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newTab(ctx, t))
			})
		}
	})
}

// tab is a window of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // in the console, where the browser reports exceptions and violations of the content policy
}

// newTab returns a window. The test fails if a page writes to its console.
func newTab(parent context.Context, t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, stop := context.WithTimeout(ctx, testTimeout)
	t.Cleanup(stop)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	// Without motion, changes are visible at once.
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchTimers})
	t.Cleanup(func() {
		eval[int](b, `console.log("last"), 1`) // the browser sends earlier messages before this one
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Equal(b.problems, []string{"console.log"}) {
			t.Errorf("the console of the browser has %q, want nothing but the test's console.log", b.problems)
		}
	})
	return b
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

// hear records the messages that a correct page does not cause.
func (b *tab) hear(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		problem = "console." + string(e.Type)
	case *log.EventEntryAdded:
		if e.Entry.Source == "network" {
			return // the browser logs responses with an error status, which the tests expect
		}
		problem = fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// click clicks the button with an ID, and waits until the page shows something.
func (b *tab) click(id, expression, want string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS("#" + id)))
	b.until(expression, want)
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

// until waits until an expression has the given value.
func (b *tab) until(expression, want string) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(testTimeout / 2); ; <-tick.C {
		got := eval[string](b, expression)
		if got == want {
			return
		}
		if time.Now().After(late) {
			b.t.Fatalf("%s\nis\n%s\nwant\n%s", expression, got, want)
		}
	}
}

// call runs a command of the DevTools protocol on the tab.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}
