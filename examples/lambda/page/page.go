// Package page is the start page of the example. It shows the limits of the client that
// opens it, which it reads from the RateLimit headers as any client can.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // index.html
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"time"
)

//go:embed index.html
var embedded []byte

// Handler returns a handler for GET and HEAD that serves the page. The page is one file
// without external resources, and browsers revalidate it by its ETag on each visit. It
// sends GET limits, GET search, POST export and POST login relative to its own address, so
// mount it at the root of these routes. The handler is safe for concurrent use.
func Handler() http.Handler { return handler(embedded) }

func handler(html []byte) http.Handler {
	d := newDocument(html)
	sum := sha256.Sum256(d.html)
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.setHeaders(w.Header())
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.html))
	})
}

// document is the page and its Content-Security-Policy.
type document struct {
	html   []byte
	policy string
}

func newDocument(html []byte) document {
	// The browser hashes the parsed text, in which every line ends with \n. A checkout
	// may have changed the line endings.
	html = bytes.ReplaceAll(html, []byte("\r\n"), []byte("\n"))
	return document{html, contentPolicy(html)}
}

// setHeaders sets the headers of each response with the page.
func (d document) setHeaders(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", d.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// inline matches the text of a style or script element of the page.
var inline = regexp.MustCompile(`(?s)<(style|script)>(.*?)</(?:style|script)>`)

// contentPolicy returns the Content-Security-Policy of the page. It allows the page's own
// style and script, its icon, and requests to its origin. Trusted types make the browser
// refuse to parse a string as HTML, so text of a server never becomes markup.
func contentPolicy(html []byte) string {
	hashes := map[string]string{}
	for _, match := range inline.FindAllSubmatch(html, -1) {
		sum := sha256.Sum256(match[2])
		hashes[string(match[1])] += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src" + hashes["style"] + "; script-src" + hashes["script"] +
		"; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
		"; require-trusted-types-for 'script'; trusted-types 'none'"
}
