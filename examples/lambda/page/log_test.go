package page_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// entries returns the entries of the log as strings, newest first.
func (s state) entries() []string {
	var all []string
	for _, a := range s.Log {
		all = append(all, a.Status+" "+a.What)
	}
	return all
}

func TestRepeatedRefusalsShareAnEntry(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	allowed, refused := 0, 0
	click := func(id string, ok bool) {
		t.Helper()
		if ok {
			allowed++
		} else {
			refused++
		}
		b.click(id)
		b.until(fmt.Sprintf("tally of %d allowed and %d refused", allowed, refused), func(s state) bool {
			return s.Tally == fmt.Sprintf("%d allowed", allowed) || s.Tally == fmt.Sprintf("%d allowed, %d refused", allowed, refused)
		})
	}
	for i := range 5 {
		click("export", i < 3)
	}
	click("search", true)
	click("export", false)
	click("export", false)
	got := b.state().entries()
	want := []string{
		"429 Export × 2: refused by export-burst",
		"200 Search",
		"429 Export × 2: refused by export-burst",
		"200 Export", "200 Export", "200 Export",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log shows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.pass(time.Second)
	click("export", false)
	if got, want := b.state().Log[0].Lines, []string{"Retry-After: 1", `RateLimit: "export-burst";r=0;t=1, "export-day";r=17;t=43198`}; !slices.Equal(got, want) {
		t.Errorf("the entry shows %q, want those of the latest refusal, %q", got, want)
	}
}

func TestTheLogKeepsTheLatestEightEntries(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	for i := range 9 {
		b.click("search")
		b.untilTally(fmt.Sprintf("%d allowed", i+1))
	}
	seen := b.state()
	if len(seen.Log) != 8 {
		t.Fatalf("the log has %d entries, want 8", len(seen.Log))
	}
	for i, want := range []int{1, 2, 3, 4, 5, 6, 7, 8} {
		if got, want := seen.Log[i].Lines[0], fmt.Sprintf(`RateLimit: "search";r=%d;t=1`, want); got != want {
			t.Errorf("entry %d shows %q, want %q", i, got, want)
		}
	}
}

func TestAnEmptyPageSaysWhatToDo(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t).URL)
	seen := b.untilBars("search 10 of 10")
	if len(seen.Hints) != 1 || !strings.HasPrefix(strings.TrimSpace(seen.Hints[0]), "Press Search × 20.") {
		t.Errorf("before the first click the hints are %q, want the steps to try", seen.Hints)
	}
	b.click("search")
	if seen := b.untilTally("1 allowed"); len(seen.Hints) != 0 {
		t.Errorf("after a click the hints are %q, want none", seen.Hints)
	}

	silent := open(t, says(t, func(string) (string, string) { return "", "" }))
	silent.click("search")
	if seen := silent.untilTally("1 allowed"); !slices.Equal(seen.Hints, []string{"No response has shown a limit yet."}) {
		t.Errorf("without RateLimit headers the hints are %q", seen.Hints)
	}
}

func TestAWindowTellsItsEndAndABucketItsNextUnit(t *testing.T) {
	t.Parallel()
	const policy = `"day";q=20;w=86400, "late";q=20;w=86400, "bucket";q=10;w=10, "empty";q=10;w=10, "debt";q=10;w=10, "full";q=10;w=10`
	var later atomic.Bool // no window is mistaken for a bucket at its end
	b := open(t, says(t, func(path string) (string, string) {
		if path == "/search" {
			later.Store(true)
		}
		if later.Load() {
			return policy, `"day";r=17;t=60`
		}
		return policy, `"day";r=17;t=67543, "late";r=17;t=4320, "bucket";r=9;t=1, "empty";r=0;t=1, "debt";r=0;t=90, "full";r=10;t=5`
	}))
	seen := b.untilBars("day 17 of 20", "full 10 of 10")
	for name, want := range map[string]string{
		"day":    "20 per 24 h; window ends in 19 h",
		"late":   "20 per 24 h; next in 72 min", // the headers do not tell it from a bucket
		"bucket": "10 per 10 s; next in 1 s",
		"empty":  "10 per 10 s; next in 1 s",
		"debt":   "10 per 10 s; next in 90 s",
		"full":   "10 per 10 s; ",
	} {
		if got := seen.bar(name).Small; got != want {
			t.Errorf("%s says %q, want %q", name, got, want)
		}
	}
	b.click("search")
	const end = "20 per 24 h; window ends in 1 min"
	b.until(end, func(s state) bool { return s.bar("day").Small == end })
}

func TestAScreenReaderHearsOneSummaryOfAClickAndEachTroubleOnce(t *testing.T) {
	t.Parallel()
	s, b := ready(t)
	eval[bool](b, `globalThis.heard = [], [...document.querySelectorAll("[aria-live], [role=status], [role=log], [role=alert]")].forEach((region) =>
		new MutationObserver(() => heard.push(region.textContent)).observe(region, {childList: true, subtree: true, characterData: true})), true`)
	heard := func(want ...string) {
		t.Helper()
		b.until(fmt.Sprintf("%q in its live regions", want), func(state) bool {
			return slices.Equal(eval[[]string](b, "heard"), want)
		})
	}
	const summary, again = "Search: 10 allowed, 10 refused by search", "Search: refused by search"
	const trouble = "The server could not decide; retrying"
	b.click("search20")
	heard(summary)
	b.click("search")
	heard(summary, again)
	b.click("search")
	heard(summary, again, again)

	s.down.Store(true)
	b.click("export")
	b.until("second retry", func(state) bool { return s.failures.Load() >= 3 })
	s.down.Store(false)
	heard(summary, again, again, trouble, "Export: error", "")
}
