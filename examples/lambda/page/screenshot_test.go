package page_test

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var screenshot = flag.String("screenshot", "", "the `file` to which TestScreenshot writes its picture")

// TestScreenshot takes the screenshot of the README. This command updates the file:
//
//	go test ./examples/lambda/page -run TestScreenshot -screenshot screenshot.png
func TestScreenshot(t *testing.T) {
	t.Parallel()
	const width, height, scale, most = 1000, 790, 2, 150 << 10
	s := serve(t)
	b := newTab(t)
	b.do(chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)))
	b.visit(s.URL)
	b.untilBars("search 10 of 10")
	b.click("search20")
	b.untilTally("10 allowed, 10 refused")
	s.pass(3 * time.Second)
	for _, step := range []struct{ click, tally string }{
		{"export", "11 allowed, 10 refused"},
		{"export", "12 allowed, 10 refused"},
		{"export", "13 allowed, 10 refused"},
		{"export", "13 allowed, 11 refused"},
		{"export", "13 allowed, 12 refused"},
		{"wrong", "13 allowed, 1 failed, 12 refused"},
		{"search", "14 allowed, 1 failed, 12 refused"},
	} {
		b.click(step.click)
		b.untilTally(step.tally)
	}
	b.untilBars("search 2 of 10", "export-burst 0 of 3", "export-day 17 of 20", "login-address 19 of 20", "page 10 of 10")
	eval[bool](b, `document.getElementById("shell").textContent = "curl -i http://localhost:8080/search", document.activeElement.blur(), true`)
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1)) // away from the button
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	picture := shrink(t, shot)
	config, err := png.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	if config.Width != width*scale || config.Height != height*scale {
		t.Errorf("the picture has %d x %d pixels, want %d x %d", config.Width, config.Height, width*scale, height*scale)
	}
	if len(picture) > most {
		t.Errorf("the picture has %d bytes, want at most %d", len(picture), most)
	}
	if *screenshot != "" {
		if err := os.WriteFile(*screenshot, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shrink encodes a picture with a palette of its 256 most frequent colors. The other colors
// have few pixels, and the difference is not visible.
func shrink(t *testing.T, picture []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.Color]int{}
	bounds := full.Bounds()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			count[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	palette := color.Palette(colors[:min(len(colors), 256)])
	nearest := make(map[color.Color]uint8, len(colors))
	for _, c := range colors {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			small.SetColorIndex(x, y, nearest[full.At(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
