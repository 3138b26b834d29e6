package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

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
	testenv.Must(t, err)
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
	testenv.Must(t, chromedp.Listen(ctx, b.hear))
	// Without motion, changes are visible at once.
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchTimers})
	t.Cleanup(func() {
		eval[int](b, `console.log("last"), 1`) // the browser sends earlier messages before this one
		b.mu.Lock()
		defer b.mu.Unlock()
		testenv.Equal(t, b.problems, []string{"console.log"}, "the console of the browser has the test's console.log only")
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
	testenv.Must(b.t, chromedp.Do(b.ctx, steps...))
}

// click clicks the button with an ID, and waits until the page shows something.
func (b *tab) click(id, expression, want string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS("#" + id)))
	b.until(expression, want)
}

func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

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

func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

type answer struct {
	status               int // 0: the connection breaks
	policy, quota, retry string
	problem              string // the body, a problem document
}

// site serves the page, and answers its requests as the test says.
type site struct {
	*httptest.Server
	answer atomic.Pointer[func(path string) answer]
}

// open shows the page of a new site in the tab.
func (b *tab) open(of func(path string) answer) *site {
	b.t.Helper()
	s := &site{}
	s.set(of)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := (*s.answer.Load())(r.URL.Path)
		if a.status == 0 {
			panic(http.ErrAbortHandler)
		}
		for name, value := range map[string]string{"RateLimit-Policy": a.policy, "RateLimit": a.quota, "Retry-After": a.retry} {
			if value != "" {
				w.Header().Set(name, value)
			}
		}
		if r.URL.Path == "/" {
			Handler().ServeHTTP(w, r)
			return
		}
		if a.problem != "" {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.problem))
	}))
	b.t.Cleanup(s.Close)
	b.do(chromedp.Navigate(s.URL))
	return s
}

func (s *site) set(of func(path string) answer) { s.answer.Store(&of) }

func always(a answer) func(string) answer { return func(string) answer { return a } }

// search is an answer with what is left of the limit search.
func search(quota string) answer {
	return answer{status: 200, policy: `"search";q=10;w=10`, quota: `"search";` + quota}
}

// full is the bar of search while nothing is used.
const full = "search; 10 of 10; 10 searches per 10 s; ; 100"

// What the page shows, as JavaScript.
const (
	bars = `[...document.querySelectorAll("[role=meter]")].map((bar) => [
		...[".name", ".number", ".per", ".until"].map((part) => bar.parentElement.querySelector(part).textContent),
		Math.round(100 * bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)].join("; ")).join("\n")`
	// entries has the number of entries and their texts, newest first.
	entries = `[...document.querySelectorAll("#log li")].map((entry) => [...entry.querySelectorAll(".status, .what > span:first-child, .line, .advice")].map((e) => e.textContent).join("; "))`
	latest  = entries + `.length + " " + ` + entries + `[0] + " | " + document.getElementById("tally").textContent`
	waits   = `[...pending.values()].join() + " " + document.getElementById("trouble").textContent` // in milliseconds
)

func barsShow(b *tab) {
	const image = `<img src=x onerror=document.title=1>`
	const policy = `"day";q=20;w=86400, "late";q=20;w=86400, "search";q=10;w=10, "empty";q=10;w=10, "debt";q=10;w=10, "full";q=10;w=10, ` +
		`"nothing";q=0, "over";q=2, "huge";q=999999999999999;w=999999999999999, "` + image + `";q=5, "a\"b\\c";q=5;pk=:YWJj:;*x.y=tok/en:1;f=?1;w=1.5, ("in" "side";q=1);q=2, "negative";q=-1, "decimal";q=5`
	s := b.open(func(path string) answer {
		switch path {
		case "/export": // the end of the window is near, but it is no bucket
			return answer{status: 200, policy: policy, quota: `"day";r=17;t=60`}
		case "/search":
			return answer{status: 200, policy: `"a";q=10;w=`, quota: `"a;r=7`}
		}
		return answer{status: 200, policy: policy, quota: `"day";r=17;t=67543, "late";r=17;t=4320, "search";r=9;t=1, "empty";r=0;t=1, "debt";r=0;t=90, "full";r=10;t=5, ` +
			`"nothing";r=0, "over";r=3, "huge";r=1;t=999999999999999, "` + image + `";r=5, "a\"b\\c"; r=5, "negative";r=1, "decimal";r=1.5, "unknown";r=3`}
	})
	want := "day; 17 of 20; 20 per 24 h; window ends in 19 h; 85\n" +
		"late; 17 of 20; 20 per 24 h; next in 72 min; 85\n" + // the headers do not tell it from a bucket
		"search; 9 of 10; 10 searches per 10 s; next in 1 s; 90\n" +
		"empty; 0 of 10; 10 per 10 s; next in 1 s; 0\n" +
		"debt; 0 of 10; 10 per 10 s; next in 90 s; 0\n" +
		"full; 10 of 10; 10 per 10 s; ; 100\n" +
		"nothing; 0 of 0; ; ; 0\n" +
		"over; 3 of 2; ; ; 100\n" +
		"huge; 1 of 999999999999999; 999999999999999 per 277777777778 h; window ends in 277777777778 h; 0\n" +
		image + "; 5 of 5; ; ; 100\n" +
		`a"b\c; 5 of 5; ; ; 100`
	b.until(bars, want)
	b.click("search", bars, want) // an invalid header shows nothing
	b.until(latest, `1 200; Search; RateLimit: "a;r=7 | 1 allowed`)
	s.set(always(answer{status: 200, policy: policy, quota: `"day";r=17;t=60`}))
	b.click("export", bars, strings.Replace(want, "window ends in 19 h", "window ends in 1 min", 1))
	testenv.Equal(b.t, eval[int](b, "document.images.length"), 0, "images from the name of a policy, which is text")
}

func logShows(b *tab) {
	passed, quota := search("r=10"), `RateLimit: "search";r=10`
	s := b.open(always(answer{status: 200}))
	refused := func(retry, problem string) answer { return answer{status: 429, retry: retry, problem: problem} }
	burst := refused("2", `{"violated-policies":["export-burst"]}`)
	eval[bool](b, `globalThis.heard = 0, new MutationObserver(() => heard++).observe(document.getElementById("summary"), {childList: true}), true`)
	for i, step := range []struct {
		click  string
		answer answer
		want   string // the number of entries, the latest one, and the tally
	}{
		{"search", passed, "1 200; Search; " + quota + " | 1 allowed"},
		{"export", burst, "2 429; Export: refused by export-burst; Retry-After: 2 | 1 allowed, 1 refused"},
		{"export", burst, "2 429; Export × 2: refused by export-burst; Retry-After: 2 | 1 allowed, 2 refused"},
		{"search", passed, "3 200; Search; " + quota + " | 2 allowed, 2 refused"},
		{"export", burst, "4 429; Export: refused by export-burst; Retry-After: 2 | 2 allowed, 3 refused"},
		{"wrong", answer{status: 401}, "5 401; Log in, wrong password: failed | 2 allowed, 1 failed, 3 refused"},
		{
			"wrong", refused("60", "{}"), "6 429; Log in, wrong password: refused by a hidden limit; Retry-After: 60; " +
				"Too many wrong passwords. Try again in 1 min. | 2 allowed, 1 failed, 4 refused",
		},
		{"right", answer{status: 200}, "7 200; Log in | 3 allowed, 1 failed, 4 refused"},
		{"search", answer{status: 503, retry: "1", problem: "{}"}, "8 503; Search: error; Retry-After: 1 | 3 allowed, 1 failed, 4 refused, 1 error"},
		{"export", answer{}, "8 none; Export: error | 3 allowed, 1 failed, 4 refused, 2 errors"},
		{"search", passed, "8 200; Search; " + quota + " | 4 allowed, 1 failed, 4 refused, 2 errors"},
	} {
		s.set(always(step.answer))
		b.click(step.click, latest, step.want)
		b.until("String(heard)", fmt.Sprint(i+1)) // a screen reader hears each click
	}
	var asked atomic.Int64
	s.set(func(path string) answer {
		if n := asked.Add(1); path == "/search" && n > 10 {
			return refused("1", `{"violated-policies":["search"]}`)
		}
		return passed
	})
	const shell = `document.getElementById("shell").textContent`
	b.click("search20", `document.getElementById("summary").textContent`, "Search: 10 allowed, 10 refused by search")
	b.until(entries+`.slice(0, 2).sort().join()`, "200; Search × 10; "+quota+",429; Search × 10: refused by search; Retry-After: 1")
	b.until(shell, "for i in $(seq 20); do curl -si "+s.URL+"/search | head -1; done")
	b.click("wrong", shell+`.replace(/visitor-[a-z0-9]+/, "me")`, "curl -i -d 'user=me' -d 'password=let me in' "+s.URL+"/login")
	eval[bool](b, `Object.defineProperty(navigator, "clipboard", {value: {writeText: (t) => { globalThis.copied = t; }}}), true`)
	b.click("export", shell, "curl -i -X POST "+s.URL+"/export")
	b.click("copy", `document.getElementById("copy").textContent + " " + globalThis.copied`, "Copied curl -i -X POST "+s.URL+"/export")
}

func polls(b *tab) {
	s := b.open(always(search("r=10")))
	const one = "search; 9 of 10; 10 searches per 10 s; next in 1 s; 90"
	b.until(bars, full)
	b.until(waits, " ") // no polls while all bars are full
	s.set(always(search("r=9;t=1")))
	b.click("search", bars, one)
	b.until(waits, "500 ")
	eval[bool](b, `Object.defineProperty(document, "hidden", {get: () => hide}), globalThis.hide = true, document.dispatchEvent(new Event("visibilitychange"))`)
	b.until(waits, " ")
	s.set(always(search("r=10")))
	eval[bool](b, `hide = false, document.dispatchEvent(new Event("visibilitychange"))`)
	b.until(bars, full)
	s.set(always(search("r=9;t=43199"))) // a window that ends at midnight
	b.click("search", waits, "60000 ")

	s.set(always(answer{status: 503, retry: "1"}))
	b.click("search", waits, "1000 The server could not decide; retrying")
	b.until(`document.getElementById("bars").className`, "stale")
	s.set(always(answer{}))
	b.until(waits, "5000 No response; retrying")
	s.set(always(search("r=10")))
	b.until(waits, " ")
	b.until(`document.getElementById("bars").className`, "")
}

func fits(b *tab) {
	b.open(always(search("r=9;t=3600")))
	b.until(bars+".slice(0, 15)", "search; 9 of 10")
	const small = `[...document.querySelectorAll("button")].map((e) => e.getBoundingClientRect()).filter((r) => r.width < 44 || r.height < 44).length`
	for _, width := range []int64{320, 1000} {
		b.do(chromedp.EmulateViewport(width, 844))
		if got, n := eval[int64](b, "document.documentElement.scrollWidth"), eval[int](b, small); got > width || n > 0 {
			b.t.Errorf("on a screen of %d the page is %d pixels wide, and %d buttons are smaller than 44 pixels", width, got, n)
		}
	}
	order := ""
	for range 6 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order += eval[string](b, `document.activeElement.id + " " + getComputedStyle(document.activeElement).outlineStyle + ", "`)
	}
	want := "source solid, search solid, search20 solid, export solid, wrong solid, right solid, "
	testenv.Equal(b.t, order, want, "the tab key leads to")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(latest, `1 200; Log in; RateLimit: "search";r=9;t=3600 | 1 allowed`)
}
