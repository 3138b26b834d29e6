package main

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http/httptest"
	"os"
	"testing"
)

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// largeForm returns a form with a file of 100 MB, and its content type.
func largeForm(t *testing.T) (body *counted, contentType string) {
	t.Helper()
	var head, tail bytes.Buffer
	form := multipart.NewWriter(&head)
	if _, err := form.CreateFormFile("q", "large"); err != nil {
		t.Fatal(err)
	}
	end := multipart.NewWriter(&tail)
	if err := end.SetBoundary(form.Boundary()); err != nil {
		t.Fatal(err)
	}
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	return &counted{Reader: io.MultiReader(&head, io.LimitReader(zeros{}, 100<<20), &tail)}, form.FormDataContentType()
}

// A client may send any route a body of 100 MB. The program neither keeps it in memory nor
// writes it to files.
func TestLargeBodies(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	h := service(t, settings{})
	for _, c := range []struct {
		method, target string
		most           int // bytes that the route may read
	}{
		{"GET", "/", 0},
		{"GET", "/search?q=go", 0},
		{"POST", "/export", 0},
		{"POST", "/login", maxBody + 1}, // one more shows that the body is too long
		{"GET", "/limits", 0},
		{"GET", "/health", 0},
		{"POST", "/elsewhere", 0},
	} {
		for _, urlencoded := range []bool{false, true} {
			body, contentType := largeForm(t)
			if urlencoded {
				contentType = "application/x-www-form-urlencoded"
			}
			r := httptest.NewRequest(c.method, c.target, body)
			r.Header.Set("Content-Type", contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if body.read > c.most || len(files) > 0 {
				t.Errorf("%s %s with %s: %d bytes are read, %d files left, status %d; want at most %d bytes and no file",
					c.method, c.target, contentType, body.read, len(files), w.Code, c.most)
			}
		}
	}
}
