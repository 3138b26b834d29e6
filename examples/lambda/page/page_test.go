package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(h http.Handler, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	t.Parallel()
	first := get(Handler(), nil)
	etag := first.Header().Get("ETag")
	if first.Code != http.StatusOK || first.Body.Len() == 0 || etag == "" {
		t.Fatalf("GET: %d with %d bytes and the ETag %q, want the page", first.Code, first.Body.Len(), etag)
	}
	for match, status := range map[string]int{etag: http.StatusNotModified, `"another"`: http.StatusOK} {
		w := get(Handler(), http.Header{"If-None-Match": {match}})
		if w.Code != status || w.Header().Get("ETag") != etag || (w.Body.Len() > 0) != (status == http.StatusOK) {
			t.Errorf("If-None-Match %s: %d with %d bytes and the ETag %q, want %d", match, w.Code, w.Body.Len(), w.Header().Get("ETag"), status)
		}
	}
	windows := bytes.ReplaceAll(first.Body.Bytes(), []byte("\n"), []byte("\r\n"))
	if w := get(handler(windows), nil); !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) {
		t.Error("a checkout with Windows line endings serves another page, which the content policy does not allow")
	}

	html := first.Body.String()
	hash := func(tag string) string {
		_, rest, found := strings.Cut(html, "<"+tag+">")
		text, _, closed := strings.Cut(rest, "</"+tag+">")
		if !found || !closed || strings.Contains(rest, "<"+tag) {
			t.Fatalf("the page must have exactly one %s element, without attributes", tag)
		}
		sum := sha256.Sum256([]byte(text))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	for name, want := range map[string]string{
		"Content-Type":           "text/html; charset=utf-8",
		"Cache-Control":          "no-cache",
		"Referrer-Policy":        "no-referrer",
		"X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; img-src data:; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
			"require-trusted-types-for 'script'; trusted-types 'none'", hash("style"), hash("script")),
	} {
		if got := first.Header().Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

const problem = `{"title":"refused"}`

// refusing is the middleware that has no answer for a visit.
func refusing(status int, retry string) http.Handler {
	return Explain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", retry)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(problem))
	}))
}

func TestExplain(t *testing.T) {
	t.Parallel()
	browser := http.Header{"Accept": {"text/html,*/*"}}
	for status, want := range map[int]string{
		http.StatusTooManyRequests:     "You opened this page too often, so the limit <code>page</code> refused this visit.",
		http.StatusServiceUnavailable:  "because its database failed.",
		http.StatusInternalServerError: "Its log has the reason.",
	} {
		w := get(refusing(status, "7"), browser)
		html := w.Body.String()
		retry := strings.Contains(html, "Try again</a> in 7 s.")
		if w.Code != status || !strings.Contains(html, want) || strings.Contains(html, problem) || retry != (status != 500) {
			t.Errorf("%d: the page does not explain it by %q", w.Code, want)
		}
		if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%d: the header is %v, want that of the page", status, w.Header())
		}
		curl := get(refusing(status, "7"), http.Header{"Accept": {"*/*"}})
		if curl.Code != status || curl.Body.String() != problem || curl.Header().Get("Vary") != "Accept" {
			t.Errorf("another client gets %d %s, want the error unchanged", curl.Code, curl.Body)
		}
	}
	if w := get(Explain(Handler()), browser); w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), empty) {
		t.Errorf("%d: a visit that may pass does not get the page", w.Code)
	}
}
