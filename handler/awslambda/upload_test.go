package awslambda_test

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/handler/awslambda"
)

func TestUploadsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		entries, err := os.ReadDir(dir)
		must(t, err)
		return len(entries)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "photo.jpg")
	must(t, err)
	_, _ = file.Write([]byte("\xff\xd8 a photo"))
	must(t, form.Close())

	written := 0
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil { // 0: every file goes to TMPDIR
			t.Error(err)
		}
		written = files()
	}
	upload := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parse(r) })
	breaks := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parse(r)
		panic("a bug")
	})
	ofForm := func(r *http.Request) (string, error) {
		parse(r)
		return "all", nil
	}
	for _, g := range gateways() {
		limit := handler.New(newLimiter(t, 9), handler.ClientIP())
		for name, h := range map[string]lambda.Handler{
			"a handler":                         awslambda.Handler(upload, nil),
			"a limited handler":                 awslambda.Handler(limit(upload), nil),
			"a handler that panics":             awslambda.Handler(breaks, nil),
			"a limited handler that panics":     awslambda.Handler(limit(breaks), nil),
			"the adapter of one gateway":        g.plain(upload),
			"a function with a key of the form": g.limit(newLimiter(t, 9), ofForm)(ok),
			"a function that panics": g.limit(newLimiter(t, 9), ofForm)(func(context.Context) (int, map[string]string, error) {
				panic("a bug")
			}),
		} {
			written = 0
			r := request(t, "POST", "/upload", body.String())
			r.Header.Set("Content-Type", form.FormDataContentType())
			payload := g.payload(t, r)
			panics(func() { _, _ = h.Invoke(t.Context(), payload) })
			if left := files(); written != 1 || left != 0 {
				t.Errorf("%s, %s: of %d files in TMPDIR %d are left; want none of 1", g.name, name, written, left)
			}
		}
	}
}
