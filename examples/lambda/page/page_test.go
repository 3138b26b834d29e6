package page_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/examples/lambda/page"
)

func get(t *testing.T, method string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "/", http.NoBody)
	for name, lines := range header {
		r.Header[name] = lines
	}
	w := httptest.NewRecorder()
	page.Handler().ServeHTTP(w, r)
	return w
}

func TestThePageIsRevalidatedByItsETag(t *testing.T) {
	t.Parallel()
	first := get(t, http.MethodGet, nil)
	etag := first.Header().Get("ETag")
	if first.Code != http.StatusOK || first.Body.Len() == 0 || etag == "" {
		t.Fatalf("GET: %d with %d bytes and the ETag %q, want the page", first.Code, first.Body.Len(), etag)
	}
	if again := get(t, http.MethodGet, http.Header{"If-None-Match": {etag}}); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("with its ETag: %d with %d bytes, want 304 and none", again.Code, again.Body.Len())
	}
	if other := get(t, http.MethodGet, http.Header{"If-None-Match": {`"another"`}}); other.Code != http.StatusOK {
		t.Errorf("with another ETag: %d, want 200", other.Code)
	}
	if head := get(t, http.MethodHead, nil); head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("ETag") != etag {
		t.Errorf("HEAD: %d with %d bytes, want 200 and none", head.Code, head.Body.Len())
	}
}

func TestTheContentPolicyAllowsOnlyWhatThePageNeeds(t *testing.T) {
	t.Parallel()
	w := get(t, http.MethodGet, nil)
	html := w.Body.String()
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
		if got := w.Header()[http.CanonicalHeaderKey(name)]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
