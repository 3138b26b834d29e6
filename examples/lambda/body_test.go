package main

import (
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// counted is a body of 100 MB that counts the bytes that are read.
type counted struct{ read int }

func (c *counted) Read(p []byte) (int, error) {
	const size = 100 << 20
	n := min(len(p), size-c.read)
	if n == 0 {
		return 0, io.EOF
	}
	copy(p[:n], strings.Repeat("a", n))
	c.read += n
	return n, nil
}

// A client may send any route a body of 100 MB. The program neither keeps it in memory nor
// writes it to files.
func TestLargeBodies(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	h := service(t, settings{})
	for _, target := range []string{"GET /", "GET /search?q=go", "POST /export", "POST /login", "GET /limits", "GET /health", "POST /elsewhere"} {
		for _, contentType := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=a"} {
			method, path, _ := strings.Cut(target, " ")
			body, most := &counted{}, 0 // bytes that the route may read
			if path == "/login" {
				most = maxBody + 1 // one more shows that the body is too long
			}
			r := httptest.NewRequest(method, path, body)
			r.Header.Set("Content-Type", contentType)
			h.ServeHTTP(httptest.NewRecorder(), r)
			files, err := os.ReadDir(dir)
			if err != nil || body.read > most || len(files) > 0 {
				t.Errorf("%s with %s: %d bytes are read, %d files left, %v; want at most %d bytes and no file", target, contentType, body.read, len(files), err, most)
			}
		}
	}
}
