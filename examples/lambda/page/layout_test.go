package page_test

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// rect is what getBoundingClientRect returns, in CSS pixels.
type rect struct {
	Name   string  `json:"name"`
	Left   float64 `json:"left"`
	Top    float64 `json:"top"`
	Right  float64 `json:"right"`
	Bottom float64 `json:"bottom"`
}

// rects returns the rectangles of the elements that a selector matches.
func (b *tab) rects(selector string) []rect {
	b.t.Helper()
	return eval[[]rect](b, `[...document.querySelectorAll("`+selector+`")].map((e) => ({name: e.textContent, ...e.getBoundingClientRect().toJSON()}))`)
}

// phone opens the page on a phone.
func phone(t *testing.T, s *service, width, height int64) *tab {
	t.Helper()
	b := newTab(t)
	b.do(chromedp.EmulateViewport(width, height))
	b.visit(s.URL)
	b.untilBars("search 10 of 10")
	return b
}

func TestButtonsAreLargeEnoughForAFinger(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, width := range []int64{320, 390, 1000} {
		b := phone(t, s, width, 844)
		buttons := b.rects("button")
		if len(buttons) != 6 {
			t.Fatalf("the page has %d buttons, want 6", len(buttons))
		}
		for _, r := range buttons {
			if w, h := r.Right-r.Left, r.Bottom-r.Top; w < 44 || h < 44 {
				t.Errorf("at %d pixels the button %q is %.0f x %.0f pixels, want at least 44 x 44", width, r.Name, w, h)
			}
		}
	}
}

func TestAPhoneShowsResponsesWithoutScrolling(t *testing.T) {
	t.Parallel()
	const height = 664 // of a screen of 844, without what the browser shows
	s := serve(t)
	b := phone(t, s, 390, height)
	b.click("search20")
	b.untilTally("10 allowed, 10 refused")
	if y := eval[float64](b, "scrollY"); y != 0 {
		t.Fatalf("the page is scrolled by %.0f pixels", y)
	}
	entries := b.rects("#log li")
	if len(entries) < 2 {
		t.Fatalf("the log has %d entries, want the allowed and the refused", len(entries))
	}
	for _, r := range entries[:2] {
		if r.Top < 0 || r.Bottom > height {
			t.Errorf("the response %q is at %.0f to %.0f pixels, want it on the screen of %d", r.Name, r.Top, r.Bottom, height)
		}
	}
	for _, r := range b.rects(".policy, .actions button") {
		if r.Top < 0 || r.Bottom > height || r.Left < 0 || r.Right > 390 {
			t.Errorf("%q is at %.0f to %.0f pixels, want it on the screen", r.Name, r.Top, r.Bottom)
		}
	}
	if got := eval[int](b, "document.documentElement.scrollWidth"); got > 390 {
		t.Errorf("the page is %d pixels wide on a screen of 390", got)
	}
}
