package page_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestThePageWorksByKeyboard(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	var order []string
	for range 7 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order = append(order, eval[string](b, "document.activeElement.id"))
		if got := eval[string](b, "getComputedStyle(document.activeElement).outlineStyle"); got != "solid" {
			t.Errorf("the focus on %s has the outline %q", order[len(order)-1], got)
		}
	}
	if want := []string{"source", "search", "search20", "export", "wrong", "right", "copy"}; !slices.Equal(order, want) {
		t.Fatalf("the tab key leads to %q, want %q", order, want)
	}
	b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)), chromedp.KeyEvent(kb.Enter))
	b.untilTally("1 allowed")
	for range 2 {
		b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	}
	b.do(chromedp.KeyEvent(" "))
	seen := b.untilTally("2 allowed")
	if seen.Log[1].What != "Log in" || seen.Log[0].What != "Export" {
		t.Errorf("after Enter on Right password and space on Export the page shows\n%s", seen)
	}
	b.untilBars("export-burst 2 of 3")
}

func TestTheAccessibilityTreeHasAllThatIsVisible(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	b.click("search")
	b.untilTally("1 allowed")
	b.untilBars("search 9 of 10")
	var told []string
	for _, node := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role, name := value(node.Role), value(node.Name)
		switch role {
		case "button", "heading":
			told = append(told, role+" "+name)
		case "meter":
			told = append(told, fmt.Sprintf("meter %s %s, %s to %s", name, value(node.Value), property(node, "valuemin"), property(node, "valuemax")))
		case "log", "status":
			told = append(told, role+" "+name+" "+property(node, "live"))
		}
	}
	want := []string{
		"heading Your rate limits, live",
		"button Search", "button Search × 20", "button Export", "button Log in, wrong password", "button Log in, right password", "button Copy",
		"heading Your limits", "status  polite",
		"meter search 9, 0 to 10", "meter export-burst 3, 0 to 3", "meter export-day 20, 0 to 20",
		"meter login-address 20, 0 to 20", "meter page 10, 0 to 10",
		"heading Responses", "status  polite",
	}
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) {
		t.Errorf("the tree has\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	// The protocol does not report the text of a meter's value.
	if got := eval[string](b, `document.querySelector("[role=meter]").ariaValueText`); got != "9 of 10" {
		t.Errorf("the first meter is read out as %q, want 9 of 10", got)
	}
}

func value(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	if json.Unmarshal(v.Value, &text) != nil {
		return string(v.Value) // a number
	}
	return text
}

func property(node *accessibility.Node, name string) string {
	for _, p := range node.Properties {
		if string(p.Name) == name {
			return value(p.Value)
		}
	}
	return ""
}

// contrasts returns the contrast of each text with its background, by the formula of WCAG 2.2
// (relative luminance).
const contrasts = `(() => {
	const numbers = (color) => color.match(/[\d.]+/g).map(Number);
	const luminance = (color) => {
		const [r, g, b] = numbers(color).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		const color = getComputedStyle(e).backgroundColor;
		return numbers(color)[3] === 0 ? behind(e.parentElement) : color;
	};
	const found = [];
	for (const e of document.querySelectorAll("main *")) {
		if (![...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()) || !e.getClientRects().length) continue;
		const [low, high] = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((a, b) => a - b);
		found.push({text: e.textContent, contrast: (high + 0.05) / (low + 0.05)});
	}
	return found;
})()`

func TestTextHasContrastInBothColorSchemesAndFitsASmallPhone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := newTab(t)
	b.do(chromedp.EmulateViewport(320, 640))
	b.visit(s.URL)
	b.untilBars("search 10 of 10")
	for _, step := range []struct{ click, tally string }{
		{"search20", "10 allowed, 10 refused"},
		{"export", "11 allowed, 10 refused"},
	} {
		b.click(step.click)
		b.untilTally(step.tally)
	}
	s.down.Store(true)
	b.click("search")
	b.until("response of each kind", func(s state) bool { return s.Tally == "11 allowed, 10 refused, 1 error" && s.Trouble != "" })
	if got := eval[int](b, "document.documentElement.scrollWidth"); got > 320 {
		t.Errorf("the page is %d pixels wide on a screen of 320", got)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.emulate(scheme)
		texts := eval[[]struct {
			Text     string  `json:"text"`
			Contrast float64 `json:"contrast"`
		}](b, contrasts)
		if len(texts) < 40 {
			t.Fatalf("%s: only %d texts were found", scheme, len(texts))
		}
		for _, text := range texts {
			if text.Contrast < 4.5 { // success criterion 1.4.3
				t.Errorf("%s: the contrast of %q is %.2f, want at least 4.5", scheme, text.Text, text.Contrast)
			}
		}
	}
	if light, dark := background(b, "light"), background(b, "dark"); light == dark {
		t.Errorf("the page is %s in light and dark", light)
	}
}

func TestThePageRespectsReducedMotion(t *testing.T) {
	t.Parallel()
	_, b := ready(t)
	const duration = `getComputedStyle(document.querySelector(".fill")).transitionDuration`
	if got := eval[string](b, duration); got != "0s" {
		t.Errorf("with reduced motion a bar moves for %s", got)
	}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	if got := eval[string](b, duration); got != "0.3s" {
		t.Errorf("a bar moves for %s, want 0.3s", got)
	}
}

func background(b *tab, scheme string) string {
	b.t.Helper()
	b.emulate(scheme)
	return eval[string](b, "getComputedStyle(document.body).backgroundColor")
}
