package main

import (
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// A client may send any route a body of 100 MB. The program neither keeps it in memory nor
// writes it to files.
func TestLargeBodies(t *testing.T) {
	const size = 100 << 20
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	h := service(t, settings{})
	for _, target := range []string{"GET /", "GET /search?q=go", "POST /export", "POST /login", "GET /limits", "GET /health", "POST /elsewhere"} {
		for _, contentType := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=a"} {
			method, path, _ := strings.Cut(target, " ")
			body, most := &io.LimitedReader{R: rand.NewChaCha8([32]byte{}), N: size}, int64(0) // bytes that the route may read
			if path == "/login" {
				most = maxBody + 1 // one more shows that the body is too long
			}
			r := httptest.NewRequest(method, path, body)
			r.Header.Set("Content-Type", contentType)
			h.ServeHTTP(httptest.NewRecorder(), r)
			files, err := os.ReadDir(dir)
			if read := size - body.N; err != nil || read > most || len(files) > 0 {
				t.Errorf("%s with %s: %d bytes are read, %d files left, %v; want at most %d bytes and no file", target, contentType, read, len(files), err, most)
			}
		}
	}
}
