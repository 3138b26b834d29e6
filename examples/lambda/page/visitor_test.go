package page_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shell returns the shell command that the page shows.
func (b *tab) shell() string {
	b.t.Helper()
	return eval[string](b, `document.getElementById("shell").textContent`)
}

// notice returns what the page says of the visit itself.
func (b *tab) notice() string {
	b.t.Helper()
	return eval[string](b, `document.getElementById("notice").textContent`)
}

// A visitor learns what the page is and what to do, with and without the database.
func TestVisitor(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	if got := eval[string](b, `document.querySelector(".lead").textContent + source.href`); !strings.Contains(got, "limiter, a Go library") || !strings.HasSuffix(got, "https://github.com/sqlimit/limiter") {
		t.Errorf("the page says %q, want its name and its source", got)
	}
	if got := eval[string](b, `[...document.querySelectorAll("button:not(.plain)")].map((e) => e.textContent).join()`); got != "Search × 20" {
		t.Errorf("the primary buttons are %q, want the one of the first step, Search × 20", got)
	}

	clicks := 0
	click := func(id string) state {
		t.Helper()
		clicks++
		b.click(id)
		return b.until(strconv.Itoa(clicks)+" responses", func(s state) bool { return sum(s.Tally) == clicks })
	}
	var seen state
	for range 7 {
		seen = click("wrong")
	}
	if got := strings.Join(seen.entries(), "\n"); got != "429 Log in, wrong password × 2: refused by a hidden limit\n401 Log in, wrong password × 5: failed" {
		t.Errorf("after seven wrong passwords the log shows\n%s", got)
	}
	if got := eval[string](b, `document.querySelector(".advice").textContent`); got != "Too many wrong passwords. Try again in 1 min." {
		t.Errorf("the advice is %q", got)
	}

	// A copied command sends the request of the button.
	if got := b.shell(); !strings.HasPrefix(got, "curl -i -d 'user=visitor-") || !strings.HasSuffix(got, " -d 'password=let me in' "+s.URL+"/login") {
		t.Errorf("the command is %q", got)
	}
	click("export")
	const copied = `(() => { Object.defineProperty(navigator, "clipboard", {value: {writeText: (t) => { globalThis.copied = t; }}}); return true; })()`
	eval[bool](b, copied)
	b.click("copy")
	b.until("copied command", func(state) bool {
		return eval[string](b, `document.getElementById("copy").textContent + " " + globalThis.copied`) == "Copied curl -i -X POST "+s.URL+"/export"
	})

	const bars = `getComputedStyle(document.querySelector(".fill")).backgroundColor + " " + getComputedStyle(document.querySelector(".bar")).opacity`
	bright := eval[string](b, bars)
	s.down.Store(true)
	click("search")
	b.until("dim bars", func(state) bool { return eval[string](b, bars) != bright })
	b.visit(s.URL)
	if got, want := b.notice(), "The server could not decide whether to answer this visit, because its database failed. Try again in 1 s."; got != want {
		t.Errorf("without the database the page says %q, want %q", got, want)
	}
	s.down.Store(false)
	b.until("recovery", func(state) bool { return strings.HasSuffix(b.notice(), " The database works again.") })

	for range 11 { // the clock of the service stands still
		b.visit(s.URL)
	}
	if got, want := b.notice(), "You opened this page too often, so the limit page refused this visit. Try again in 1 s."; got != want {
		t.Errorf("at the eleventh visit the page says %q, want %q", got, want)
	}
	resp, err := http.Get(s.URL) // accepts anything, as curl does
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusTooManyRequests || got != "application/problem+json" {
		t.Errorf("another client gets %d with %s, want 429 with a problem document", resp.StatusCode, got)
	}
	s.pass(time.Second)
	b.until("room", func(state) bool { return strings.HasSuffix(b.notice(), " It has room again.") })
}
