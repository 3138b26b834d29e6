package awslambda_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler/awslambda"
)

// Lambda takes 6 MB of JSON, where a NUL is six bytes as text and 4/3 of a byte in base64.
func TestBodiesAreSentInTheShorterForm(t *testing.T) {
	t.Parallel()
	const n = 1 << 15
	quotes := `["` + strings.Repeat(`","`, n/3) + `"]`
	tests := []struct {
		name, body string
		encoded    bool
		text       bool // a REST API without binary media types would not decode it
	}{
		{"text", strings.Repeat("caffè <b>&\n", n/12), false, true},
		{"JSON", strings.Repeat(`{"message":"hello, world"}`, n/26), false, true},
		{"JSON of many quotes", quotes, true, true},
		{"lines that are empty", strings.Repeat("\r\n", n/2), true, true},
		{"NULs", strings.Repeat("\x00", n), true, false},
		{"a file that is UTF-8 by chance", strings.Repeat("RIFF\x00\x01\x02\x00", n/8), true, false},
		{"colors of a terminal", strings.Repeat("\x1b[1m", n/4), true, true},
		{"a page with a few NULs", strings.Repeat("a", n) + "\x00\x00", false, false},
		{"a short body of NULs", "\x00\x00", true, false},
		{"line separators", strings.Repeat("\u2028", n/3), true, true},
		{"no UTF-8", strings.Repeat("\xff", n), true, false},
	}
	for _, tt := range tests {
		for _, g := range gateways() {
			h := awslambda.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) }), nil)
			out, err := h.Invoke(t.Context(), g.payload(t, request(t, "GET", "/", "")))
			must(t, err)
			var res lambdaResponse
			must(t, json.Unmarshal(out, &res))
			want := tt.encoded && (!tt.text || g.name != "REST API")
			if a := g.read(t, out); res.IsBase64Encoded != want || a.body != tt.body {
				t.Errorf("%s, %s: in base64: %v, want %v; it arrives: %v", g.name, tt.name, res.IsBase64Encoded, want, a.body == tt.body)
			}
			if strings.Contains(tt.body, "<b>&") && !bytes.Contains(out, []byte("<b>&")) {
				t.Errorf("%s, %s: HTML is escaped", g.name, tt.name)
			}
			if limit := 4*len(tt.body)/3 + 1000; want && len(out) > limit {
				t.Errorf("%s, %s: %d bytes became %d, want at most %d", g.name, tt.name, len(tt.body), len(out), limit)
			}
		}
	}
}

// FuzzShorterForm compares what is chosen with what encoding/json makes of a body.
func FuzzShorterForm(f *testing.F) {
	for _, s := range []string{"", "a", "\x00", "\b\f\n\r\t\x7f", `"\`, "<&>", "\u2028\u2029", "é\U0001f600", "\xe2\x80", "\x1b\x0b"} {
		f.Add(s)
		f.Add(strings.Repeat(s, 10))
	}
	f.Fuzz(func(t *testing.T, body string) {
		send := func(encoding string) (res lambdaResponse) {
			h := awslambda.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "x")
				w.Header().Set("Content-Encoding", encoding)
				_, _ = io.WriteString(w, body)
			}), nil)
			out, err := h.Invoke(t.Context(), recorded(t, "httpapi"))
			must(t, err)
			must(t, json.Unmarshal(out, &res))
			return res
		}
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		must(t, enc.Encode(body))
		res, always := send(""), send("gzip") // what is compressed is always in base64
		shorter := len(always.Body) < text.Len()-len("\"\"\n")
		if valid := strings.ToValidUTF8(body, "") == body; valid && res.IsBase64Encoded != shorter {
			t.Errorf("in base64: %v; %d bytes in base64, %d as text", res.IsBase64Encoded, len(always.Body), text.Len()-3)
		}
	})
}
