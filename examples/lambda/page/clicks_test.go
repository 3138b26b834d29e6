package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// ready opens the page of a service on which the second has passed that the visit itself
// cost.
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
		"search: 10 of 10, 100 %; 10 per 10 s; ",
		"export-burst: 3 of 3, 100 %; 3 per 6 s; ",
		"export-day: 20 of 20, 100 %; 20 per 24 h; ",
		"login-address: 20 of 20, 100 %; 20 per min; ",
		"page: 9 of 10, 90 %; 10 per 10 s; no more for 1 s", // the visit
	}
	if !slices.Equal(got, want) {
		t.Errorf("the bars are\n%q, want\n%q", got, want)
	}
	if len(seen.Log) != 0 || seen.Tally != "" || seen.Trouble != "" {
		t.Errorf("without a click the page shows\n%s", seen)
	}
}

func TestASearchDrainsItsBarByOne(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("search")
	seen := b.untilBars("search 9 of 10", "export-burst 3 of 3", "page 10 of 10")
	if got := seen.bar("search"); got.Filled != 90 || got.Small != "10 per 10 s; no more for 1 s" {
		t.Errorf("the bar is filled to %d %% and says %q, want 90 %% and that there is no more for 1 s", got.Filled, got.Small)
	}
	seen = b.untilTally("1 passed")
	want := answer{Status: "200", What: "Search", Lines: []string{`RateLimit: "search";r=9;t=1`}}
	if got := seen.Log[0]; got.Status != want.Status || got.What != want.What || !slices.Equal(got.Lines, want.Lines) {
		t.Errorf("the log shows %+v, want %+v", got, want)
	}
}

func TestTwentySearchesAtOnceEmptyTheBarWhichRefillsByItself(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	eval[bool](b, `globalThis.busy = [], new MutationObserver(() => busy.push(log.ariaBusy)).observe(log, {attributes: true}), true`)
	b.click("search20")
	b.untilTally("10 passed, 10 refused")
	seen := b.untilBars("search 0 of 10")
	if got := seen.bar("search").Filled; got != 0 {
		t.Errorf("the empty bar is filled to %d %%", got)
	}
	if len(seen.Log) != 8 {
		t.Errorf("the log has %d answers, want the latest 8", len(seen.Log))
	}
	if got := eval[[]string](b, "busy"); !slices.Equal(got, []string{"true", "false"}) {
		t.Errorf("while it changed twenty times the log told screen readers that it is busy: %q", got)
	}
	i := slices.IndexFunc(seen.Log, func(a answer) bool { return a.Status == "429" })
	if i < 0 {
		t.Fatalf("the log has no 429:\n%s", seen)
	}
	if got, want := seen.Log[i].Lines, []string{"Retry-After: 1", `RateLimit: "search";r=0;t=1`}; !slices.Equal(got, want) {
		t.Errorf("the refusal shows %q, want %q", got, want)
	}
	if got, want := seen.Log[i].What, "Search: refused by search"; got != want {
		t.Errorf("the refusal reads %q, want %q", got, want)
	}

	s.pass(3 * time.Second)
	b.untilBars("search 3 of 10")
	s.pass(time.Minute)
	b.untilBars("search 10 of 10")
}

func TestNobodyIsAskedWhileAllBarsAreFullOrNobodyLooks(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	asleep := func(s state) bool { return len(s.Waits) == 0 }
	b.until("that it waits for nothing", asleep)

	b.click("search")
	b.until("that it looks again in half a second", func(s state) bool { return slices.Equal(s.Waits, []int{500}) })
	if waits := eval[[]int](b, `Object.defineProperty(document, "hidden", {get: () => hide}), globalThis.hide = true,
		document.dispatchEvent(new Event("visibilitychange")), [...pending.values()]`); len(waits) != 0 {
		t.Errorf("hidden, it looks again in %v ms, want never", waits)
	}
	looks := s.looks.Load()
	s.pass(time.Second)
	eval[bool](b, `hide = false, document.dispatchEvent(new Event("visibilitychange"))`)
	b.untilBars("search 10 of 10")
	b.until("that it waits for nothing", asleep)
	if got := s.looks.Load() - looks; got != 1 {
		t.Errorf("%d looks when it is seen again, want 1", got)
	}

	// What comes back at midnight is not asked for twice a second until then.
	b.click("export")
	b.untilBars("export-burst 2 of 3", "export-day 19 of 20")
	s.pass(2 * time.Second)
	b.untilBars("export-burst 3 of 3", "export-day 19 of 20")
	b.until("that it looks again in a minute", func(s state) bool { return slices.Equal(s.Waits, []int{60_000}) })
}

func TestAnExportMovesTwoBars(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("export")
	seen := b.untilTally("1 passed")
	b.untilBars("search 10 of 10", "export-burst 2 of 3", "export-day 19 of 20")
	if got, want := seen.Log[0].Lines, []string{`RateLimit: "export-burst";r=2;t=2, "export-day";r=19;t=43199`}; !slices.Equal(got, want) {
		t.Errorf("the log shows %q, want %q", got, want)
	}
	for _, tally := range []string{"2 passed", "3 passed", "3 passed, 1 refused"} {
		b.click("export")
		seen = b.untilTally(tally)
	}
	b.untilBars("export-burst 0 of 3", "export-day 17 of 20")
	if got, want := seen.Log[0].What, "Export: refused by export-burst"; got != want {
		t.Errorf("the refusal reads %q, want %q", got, want)
	}
}

func TestOnlyFailedLoginsAreCharged(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("wrong")
	seen := b.untilTally("1 passed")
	if got := seen.Log[0]; got.Status != "401" || got.What != "Log in, wrong password" {
		t.Errorf("the log shows %+v, want 401", got)
	}
	b.untilBars("login-address 19 of 20")

	// While it runs a login is charged like any; what it shows is what it was told.
	b.click("right")
	seen = b.untilTally("2 passed")
	if got := seen.Log[0]; got.Status != "200" || !slices.Equal(got.Lines, []string{`RateLimit: "login-address";r=18;t=3`}) {
		t.Errorf("the log shows %+v, want 200 and 18 left", got)
	}
	b.untilBars("login-address 19 of 20")
}

func TestALimitThatIsHiddenRefusesWithoutABar(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	for i := range 5 {
		b.click("wrong")
		b.untilTally(fmt.Sprintf("%d passed", i+1))
	}
	b.click("right")
	seen := b.untilTally("5 passed, 1 refused")
	if got := seen.Log[0]; got.Status != "429" || got.What != "Log in: refused" || got.Lines[0] != "Retry-After: 60" {
		t.Errorf("the log shows %+v, want a refusal that names no policy and a wait of a minute", got)
	}
	if text := eval[string](b, "document.body.innerText"); strings.Contains(text, "login-account") {
		t.Errorf("the page names the limit of the account:\n%s", text)
	}
	if len(seen.Bars) != len(full) {
		t.Errorf("there are %d bars, want %d", len(seen.Bars), len(full))
	}
}

func TestAStoreThatIsDownIsShownUntilItIsBack(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	b.click("search")
	b.untilBars("search 9 of 10")
	s.down.Store(true)
	b.click("search")
	seen := b.until("the 503", func(s state) bool { return s.Tally == "1 passed, 1 undecided" })
	if got := seen.Log[0]; got.Status != "503" || got.What != "Search: undecided" || !slices.Equal(got.Lines, []string{"Retry-After: 1"}) {
		t.Errorf("the log shows %+v, want 503 with Retry-After", got)
	}
	seen = b.until("that it waits as long as it was told", func(s state) bool {
		return s.Trouble == "No decision (503); trying again" && slices.Equal(s.Waits, []int{1000})
	})
	if got := seen.bar("search").Text; got != "9 of 10" {
		t.Errorf("the bar says %s, want what was known before", got)
	}
	s.pass(time.Second)
	s.down.Store(false)
	b.until("that all is well again", func(s state) bool { return s.Trouble == "" && s.bar("search").Text == "10 of 10" })
}

func TestAServerThatDoesNotAnswerIsShownUntilItDoes(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	s.mute.Store(true)
	b.click("export")
	seen := b.untilTally("1 undecided")
	if got := seen.Log[0]; got.Status != "none" || got.What != "Export: undecided" || len(got.Lines) != 0 {
		t.Errorf("the log shows %+v, want no answer", got)
	}
	b.until("that it tries again in 5 s", func(s state) bool {
		return s.Trouble == "No decision (no answer); trying again" && slices.Equal(s.Waits, []int{5000})
	})
	s.mute.Store(false)
	b.click("search")
	b.until("that all is well again", func(s state) bool { return s.Trouble == "" && s.Tally == "1 passed, 1 undecided" })
}
