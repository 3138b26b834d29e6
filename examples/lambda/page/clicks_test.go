package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// ready opens the page and lets a second pass, which refills what the visit was charged.
func ready(t *testing.T) (*service, *tab) {
	t.Helper()
	s := serve(t)
	b := open(t, s.URL)
	s.pass(time.Second)
	b.untilBars(full...)
	return s, b
}

var full = []string{"search 10 of 10", "export-burst 3 of 3", "export-day 20 of 20", "login-address 20 of 20", "page 10 of 10"}

func TestBarsAreFullAtFirst(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := open(t, s.URL)
	seen := b.untilBars("search 10 of 10", "page 9 of 10")
	var got []string
	for _, bar := range seen.Bars {
		got = append(got, fmt.Sprintf("%s: %s, %d %%; %s", bar.Name, bar.Text, bar.Filled, bar.Small))
	}
	want := []string{
		"search: 10 of 10, 100 %; 10 searches per 10 s; ",
		"export-burst: 3 of 3, 100 %; 3 exports per 6 s; ",
		"export-day: 20 of 20, 100 %; 20 exports per 24 h; ",
		"login-address: 20 of 20, 100 %; 20 failed logins per min; ",
		"page: 9 of 10, 90 %; 10 visits to this page per 10 s; next in 1 s", // the visit
	}
	if !slices.Equal(got, want) {
		t.Errorf("the bars are\n%q, want\n%q", got, want)
	}
	if len(seen.Log) != 0 || seen.Tally != "" || seen.Trouble != "" || seen.Summary != "" {
		t.Errorf("before a click the page shows\n%s", seen)
	}
}

func TestASearchDrainsItsBarByOne(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("search")
	seen := b.untilBars("search 9 of 10", "export-burst 3 of 3", "page 10 of 10")
	if got := seen.bar("search"); got.Filled != 90 || got.Small != "10 searches per 10 s; next in 1 s" {
		t.Errorf("the bar is filled to %d %% and says %q, want 90 %% and the next in 1 s", got.Filled, got.Small)
	}
	seen = b.untilTally("1 allowed")
	want := answer{Status: "200", What: "Search", Lines: []string{`RateLimit: "search";r=9;t=1`}}
	if got := seen.Log[0]; got.Status != want.Status || got.What != want.What || !slices.Equal(got.Lines, want.Lines) {
		t.Errorf("the log shows %+v, want %+v", got, want)
	}
}

func TestTwentySearchesEmptyTheBarAndItRefills(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	b.click("search20")
	b.untilTally("10 allowed, 10 refused")
	seen := b.untilBars("search 0 of 10")
	if got := seen.bar("search").Filled; got != 0 {
		t.Errorf("the empty bar is filled to %d %%", got)
	}
	if len(seen.Log) != 2 {
		t.Errorf("the log has %d entries, want one for each kind of response:\n%s", len(seen.Log), seen)
	}
	i := slices.IndexFunc(seen.Log, func(a answer) bool { return a.Status == "429" })
	if i < 0 {
		t.Fatalf("the log has no 429:\n%s", seen)
	}
	if got, want := seen.Log[i].Lines, []string{"Retry-After: 1", `RateLimit: "search";r=0;t=1`}; !slices.Equal(got, want) {
		t.Errorf("the refusal shows %q, want %q", got, want)
	}
	if got, want := seen.Log[i].What, "Search × 10: refused by search"; got != want {
		t.Errorf("the refusals read %q, want %q", got, want)
	}
	if got, want := seen.Log[1-i], "Search × 10"; got.Status != "200" || got.What != want {
		t.Errorf("the log shows %+v, want 200 and %q", got, want)
	}

	s.pass(3 * time.Second)
	b.untilBars("search 3 of 10")
	s.pass(time.Minute)
	b.untilBars("search 10 of 10")
}

func TestThePageDoesNotPollWhileAllBarsAreFullOrItIsHidden(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	asleep := func(s state) bool { return len(s.Waits) == 0 }
	b.until("end of polling", asleep)

	b.click("search")
	b.until("poll in 500 ms", func(s state) bool { return slices.Equal(s.Waits, []int{500}) })
	if waits := eval[[]int](b, `Object.defineProperty(document, "hidden", {get: () => hide}), globalThis.hide = true,
		document.dispatchEvent(new Event("visibilitychange")), [...pending.values()]`); len(waits) != 0 {
		t.Errorf("while hidden, the page polls in %v ms, want no poll", waits)
	}
	looks := s.looks.Load()
	s.pass(time.Second)
	eval[bool](b, `hide = false, document.dispatchEvent(new Event("visibilitychange"))`)
	b.untilBars("search 10 of 10")
	b.until("end of polling", asleep)
	if got := s.looks.Load() - looks; got != 1 {
		t.Errorf("%d polls when the page becomes visible, want 1", got)
	}

	// A window that ends at midnight is not polled twice a second until then.
	b.click("export")
	b.untilBars("export-burst 2 of 3", "export-day 19 of 20")
	s.pass(2 * time.Second)
	b.untilBars("export-burst 3 of 3", "export-day 19 of 20")
	b.until("poll in a minute", func(s state) bool { return slices.Equal(s.Waits, []int{60_000}) })
}

func TestAnExportMovesTwoBars(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("export")
	seen := b.untilTally("1 allowed")
	b.untilBars("search 10 of 10", "export-burst 2 of 3", "export-day 19 of 20")
	if got, want := seen.Log[0].Lines, []string{`RateLimit: "export-burst";r=2;t=2, "export-day";r=19;t=43199`}; !slices.Equal(got, want) {
		t.Errorf("the log shows %q, want %q", got, want)
	}
	for _, tally := range []string{"2 allowed", "3 allowed", "3 allowed, 1 refused"} {
		b.click("export")
		seen = b.untilTally(tally)
	}
	b.untilBars("export-burst 0 of 3", "export-day 17 of 20")
	if got, want := seen.Log[0].What, "Export: refused by export-burst"; got != want {
		t.Errorf("the refusal reads %q, want %q", got, want)
	}
}

func TestAFailedLoginIsNotCountedAsAllowed(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("wrong")
	seen := b.untilTally("1 failed")
	if got := seen.Log[0]; got.Status != "401" || got.What != "Log in, wrong password: failed" {
		t.Errorf("the log shows %+v, want 401 and that the login failed", got)
	}
	b.untilBars("login-address 19 of 20")

	// The middleware charges a login when it starts, and refunds the charge if it succeeds.
	// The response of a login hides both limits, so the page asks for them afterwards.
	b.click("right")
	seen = b.untilTally("1 allowed, 1 failed")
	if got := seen.Log[0]; got.Status != "200" || len(got.Lines) != 0 {
		t.Errorf("the log shows %+v, want 200 and no quota", got)
	}
	b.untilBars("login-address 19 of 20")
}

func TestARefusedLoginIsChargedToNeitherLimit(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	for i := range 5 {
		b.click("wrong")
		b.untilTally(fmt.Sprintf("%d failed", i+1))
	}
	for i := range 3 {
		b.click("right")
		seen := b.untilTally(fmt.Sprintf("5 failed, %d refused", i+1))
		got := seen.Log[0]
		if got.Status != "429" || !strings.HasSuffix(got.What, ": refused by a hidden limit") || !slices.Equal(got.Lines, []string{"Retry-After: 60"}) {
			t.Errorf("the log shows %+v, want a refusal by a hidden limit and a wait of a minute", got)
		}
		if len(seen.Bars) != len(full) {
			t.Errorf("there are %d bars, want %d: the service hides the quota of an account", len(seen.Bars), len(full))
		}
	}
	b.untilBars("login-address 15 of 20")
}

func TestThePageReportsAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	b.click("search")
	b.untilBars("search 9 of 10")
	s.down.Store(true)
	b.click("search")
	seen := b.until("error in the tally", func(s state) bool { return s.Tally == "1 allowed, 1 error" })
	if got := seen.Log[0]; got.Status != "503" || got.What != "Search: error" || !slices.Equal(got.Lines, []string{"Retry-After: 1"}) {
		t.Errorf("the log shows %+v, want 503 with Retry-After", got)
	}
	seen = b.until("poll after Retry-After", func(s state) bool {
		return s.Trouble == "The server could not decide; retrying" && slices.Equal(s.Waits, []int{1000})
	})
	if got := seen.bar("search").Text; got != "9 of 10" {
		t.Errorf("the bar says %s, want the last known state", got)
	}
	s.pass(time.Second)
	s.down.Store(false)
	b.until("recovery", func(s state) bool { return s.Trouble == "" && s.bar("search").Text == "10 of 10" })
}

func TestThePageReportsAServerThatDoesNotRespond(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	s.mute.Store(true)
	b.click("export")
	seen := b.untilTally("1 error")
	if got := seen.Log[0]; got.Status != "none" || got.What != "Export: error" || len(got.Lines) != 0 {
		t.Errorf("the log shows %+v, want no response", got)
	}
	b.until("poll in 5 s", func(s state) bool {
		return s.Trouble == "No response; retrying" && slices.Equal(s.Waits, []int{5000})
	})
	s.mute.Store(false)
	b.click("search")
	b.until("recovery", func(s state) bool { return s.Trouble == "" && s.Tally == "1 allowed, 1 error" })
}
