package page_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// state is what a visitor sees, and the pending timers of the page.
type state struct {
	Bars    []bar    `json:"bars"`
	Log     []answer `json:"log"`
	Tally   string   `json:"tally"`
	Trouble string   `json:"trouble"`
	Summary string   `json:"summary"` // what a screen reader hears of the last click
	Hints   []string `json:"hints"`   // those that are visible
	Waits   []int    `json:"waits"`   // of its timers, in milliseconds
}

type bar struct {
	Name   string `json:"name"`
	Text   string `json:"text"`   // "7 of 10"
	Filled int    `json:"filled"` // of what is drawn, in percent
	Small  string `json:"small"`  // what stands beside it
}

type answer struct {
	Status string   `json:"status"`
	What   string   `json:"what"`
	Lines  []string `json:"lines"`
}

const readState = `({
	bars: [...document.querySelectorAll("[role=meter]")].map((bar) => {
		const policy = bar.parentElement, fill = bar.firstChild;
		return {
			name: policy.querySelector(".name").textContent,
			text: policy.querySelector(".number").textContent,
			filled: Math.round(100 * fill.getBoundingClientRect().width / bar.getBoundingClientRect().width),
			small: [...policy.querySelectorAll(".soft")].map((part) => part.textContent).join("; "),
		};
	}),
	log: [...document.querySelectorAll("#log li")].map((entry) => ({
		status: entry.querySelector(".status").textContent,
		what: entry.querySelector(".what span").textContent,
		lines: [...entry.querySelectorAll(".line")].map((line) => line.textContent),
	})),
	tally: document.getElementById("tally").textContent,
	trouble: document.getElementById("trouble").textContent,
	summary: document.getElementById("summary").textContent,
	hints: [...document.querySelectorAll(".hint")].filter((hint) => hint.getClientRects().length).map((hint) => hint.textContent),
	waits: [...pending.values()],
})`

func (b *tab) state() state {
	b.t.Helper()
	return eval[state](b, readState)
}

// until waits until shown returns true. It fails the test if that does not happen.
func (b *tab) until(what string, shown func(state) bool) state {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(testTimeout / 2)
	for {
		s := b.state()
		if shown(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-late:
			b.t.Fatalf("no %s; the page shows\n%s", what, s)
		}
	}
}

// untilBars waits until the named bars show the given text, as in "search 9 of 10".
func (b *tab) untilBars(want ...string) state {
	b.t.Helper()
	return b.until(strings.Join(want, ", "), func(s state) bool {
		for _, w := range want {
			if !slices.ContainsFunc(s.Bars, func(bar bar) bool { return bar.Name+" "+bar.Text == w }) {
				return false
			}
		}
		return true
	})
}

// untilTally waits until the page shows the given counts.
func (b *tab) untilTally(want string) state {
	b.t.Helper()
	return b.until(want, func(s state) bool { return s.Tally == want })
}

func (s state) bar(name string) bar {
	i := slices.IndexFunc(s.Bars, func(b bar) bool { return b.Name == name })
	if i < 0 {
		return bar{}
	}
	return s.Bars[i]
}

func (s state) String() string {
	var text strings.Builder
	for _, b := range s.Bars {
		fmt.Fprintf(&text, "%s %s (%d %%) %q\n", b.Name, b.Text, b.Filled, b.Small)
	}
	for _, a := range s.Log {
		fmt.Fprintf(&text, "%s %s %q\n", a.Status, a.What, a.Lines)
	}
	fmt.Fprintf(&text, "tally %q, trouble %q, summary %q, hints %q, waits for %v ms", s.Tally, s.Trouble, s.Summary, s.Hints, s.Waits)
	return text.String()
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
