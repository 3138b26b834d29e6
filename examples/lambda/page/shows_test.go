package page_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqlimit/limiter/examples/lambda/page"
)

// says starts a server that sends the headers of the test.
func says(t *testing.T, headers func(path string) (policy, quota string)) string {
	t.Helper()
	start := page.Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		policy, quota := headers(r.URL.Path)
		w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"] = []string{policy}, []string{quota}
		if r.URL.Path == "/" {
			start.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTextOfTheServerIsNeverMarkup(t *testing.T) {
	t.Parallel()
	const name = `<img src=x onerror=document.title=1>`
	b := open(t, says(t, func(string) (string, string) {
		return `"` + name + `";q=5;w=5`, `"` + name + `";r=5`
	}))
	b.untilBars(name + " 5 of 5")
	b.click("search")
	seen := b.untilTally("1 allowed")
	if got, want := seen.Log[0].Lines, []string{`RateLimit: "` + name + `";r=5`}; !slices.Equal(got, want) {
		t.Errorf("the log shows %q, want %q", got, want)
	}
	if n := eval[int](b, `document.images.length`); n != 0 {
		t.Errorf("%d images were made of a policy's name", n)
	}
}

func TestInvalidHeadersShowNothing(t *testing.T) {
	t.Parallel()
	b := open(t, says(t, func(path string) (string, string) {
		if path == "/search" {
			return `"search";q=10, "negative";q=-1, "other";q=5`, `"search";r=7, "negative";r=1, "other";r=1.5, "unknown";r=3`
		}
		return `"a";q=10;w=`, `"a;r=7`
	}))
	b.click("export")
	seen := b.untilTally("1 allowed")
	if len(seen.Bars) != 0 {
		t.Errorf("for invalid headers the page shows\n%s", seen)
	}
	if got, want := seen.Log[0].Lines, []string{`RateLimit: "a;r=7`}; !slices.Equal(got, want) {
		t.Errorf("the log shows %q, want the header unchanged, %q", got, want)
	}
	b.click("search")
	seen = b.untilBars("search 7 of 10")
	if len(seen.Bars) != 1 {
		t.Errorf("for one valid quota among invalid ones the page shows\n%s", seen)
	}
}

func TestExtremeNumbersAreDrawn(t *testing.T) {
	t.Parallel()
	b := open(t, says(t, func(string) (string, string) {
		return `"nothing";q=0, "over";q=2, "huge";q=999999999999999;w=999999999999999`,
			`"nothing";r=0, "over";r=3, "huge";r=1;t=999999999999999`
	}))
	seen := b.untilBars("nothing 0 of 0", "over 3 of 2", "huge 1 of 999999999999999")
	for i, want := range []int{0, 100, 0} {
		if got := seen.Bars[i].Filled; got != want {
			t.Errorf("%s is filled to %d %%, want %d %%", seen.Bars[i].Name, got, want)
		}
	}
	b.until("poll in a minute", func(s state) bool { return slices.Equal(s.Waits, []int{60_000}) })
}

func TestAnOlderResponseDoesNotReplaceANewerOne(t *testing.T) {
	t.Parallel()
	var quota atomic.Value
	quota.Store(`"search";r=4;t=1`)
	hold, held := make(chan struct{}), make(chan struct{})
	b := open(t, says(t, func(path string) (string, string) {
		told := quota.Load().(string)
		if path == "/search" && quota.CompareAndSwap(told, `"search";r=2;t=1`) && strings.Contains(told, "r=4") {
			close(held)
			<-hold
		}
		return `"search";q=10;w=10`, told
	}))
	b.untilBars("search 4 of 10")
	b.click("search") // is told 4, late
	<-held
	b.click("search") // is told 2, at once
	b.untilTally("1 allowed")
	quota.Store(`"search";r=2;t=3600`) // so that no look puts right what the late answer did
	b.until("poll in a minute", func(s state) bool { return slices.Equal(s.Waits, []int{60_000}) })
	b.untilBars("search 2 of 10")
	close(hold)
	seen := b.untilTally("2 allowed")
	if got, want := seen.Log[0].Lines, []string{`RateLimit: "search";r=4;t=1`}; !slices.Equal(got, want) {
		t.Errorf("the latest entry shows %q, want %q", got, want)
	}
	if got := seen.bar("search").Text; got != "2 of 10" {
		t.Errorf("the bar says %s, want the 2 of 10 of the later request", got)
	}
}

func TestACheckoutWithWindowsLineEndingsWorks(t *testing.T) {
	t.Parallel()
	unix := bytes.ReplaceAll(page.Embedded, []byte("\r\n"), []byte("\n"))
	windows := page.HandlerOf(bytes.ReplaceAll(unix, []byte("\n"), []byte("\r\n")))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"] = []string{`"a";q=1`}, []string{`"a";r=1`}
		if r.URL.Path == "/" {
			windows.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	open(t, s.URL).untilBars("a 1 of 1")
}

// The tests rely on the messages in the console, so the tab must record them.
func TestTheTabRecordsViolationsOfTheContentPolicy(t *testing.T) {
	t.Parallel()
	start := page.Handler()
	for name, harm := range map[string]struct{ markup, want string }{
		"script":    {`<script>document.title = "done"</script>`, "security error"},
		"style":     {`<p style="color: red">`, "security error"},
		"image":     {`<img src="/image.png" alt="">`, "security error"},
		"exception": {"", "exception: Uncaught"},
		"markup":    {"", "security error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					return
				}
				whole := httptest.NewRecorder()
				start.ServeHTTP(whole, r)
				w.Header()["Content-Security-Policy"] = whole.Header()["Content-Security-Policy"]
				_, _ = w.Write(append(whole.Body.Bytes(), harm.markup...))
			}))
			t.Cleanup(s.Close)
			b := newTab(t)
			b.visit(s.URL)
			switch name {
			case "exception":
				eval[int](b, `setTimeout(() => { throw new Error("for the test") }, 0), 1`)
			case "markup":
				eval[bool](b, `(() => { try { document.body.innerHTML = "<b>"; return false } catch { return true } })()`)
			}
			b.until("message in the console", func(state) bool {
				return slices.ContainsFunc(b.console(), func(problem string) bool { return strings.Contains(problem, harm.want) })
			})
		})
	}
}
