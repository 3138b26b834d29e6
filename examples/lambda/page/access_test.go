package page

import (
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func fits(b *tab) {
	b.open(always(search("r=9;t=3600")))
	b.until(bars+".slice(0, 15)", "search; 9 of 10")
	const small = `[...document.querySelectorAll("button")].map((e) => e.getBoundingClientRect()).filter((r) => r.width < 44 || r.height < 44).length`
	for _, width := range []int64{320, 390, 1000} {
		b.do(chromedp.EmulateViewport(width, 844))
		if got, n := eval[int64](b, "document.documentElement.scrollWidth"), eval[int](b, small); got > width || n > 0 {
			b.t.Errorf("on a screen of %d the page is %d pixels wide, and %d buttons are smaller than 44 pixels", width, got, n)
		}
	}
	const background = "getComputedStyle(document.body).backgroundColor"
	light := eval[string](b, background)
	b.emulate("dark")
	if dark := eval[string](b, background); light == dark {
		b.t.Errorf("the page is %s in light and dark", light)
	}
}

func works(b *tab) {
	b.open(always(search("r=9;t=3600")))
	b.until(bars+".slice(0, 15)", "search; 9 of 10")
	var order string
	for range 7 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order += eval[string](b, `document.activeElement.id + " " + getComputedStyle(document.activeElement).outlineStyle + "\n"`)
	}
	if want := "source solid\nsearch solid\nsearch20 solid\nexport solid\nwrong solid\nright solid\ncopy solid\n"; order != want {
		b.t.Errorf("the tab key leads to\n%swant\n%s", order, want)
	}
	b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)), chromedp.KeyEvent(kb.Enter))
	b.until(latest, `1 200; Log in; RateLimit: "search";r=9;t=3600 | 1 allowed`)
	const meter = `["ariaLabel", "ariaValueNow", "ariaValueMin", "ariaValueMax", "ariaValueText"].map((name) => document.querySelector("[role=meter]")[name]).join()`
	if got := eval[string](b, meter); got != "search,9,0,10,9 of 10" {
		b.t.Errorf("the meter is read out as %q", got)
	}
}
