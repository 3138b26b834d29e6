package handler_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

// upload returns a multipart body with one file, and its content type.
func upload(t *testing.T) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = new(bytes.Buffer)
	form := multipart.NewWriter(body)
	file, err := form.CreateFormFile("file", "photo.jpg")
	must(t, err)
	_, _ = file.Write(bytes.Repeat([]byte("x"), 1000))
	must(t, form.Close())
	return body, form.FormDataContentType()
}

// files returns how many files a directory has.
func files(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	return len(entries)
}

func TestUploadsAreRemoved(t *testing.T) {
	refused := limiter.Result{Limit: 10, RetryAfter: 1, Source: limiter.SourceStore}
	allowed := limiter.Result{Allowed: true, Limit: 10, Source: limiter.SourceStore}
	written := 0
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil { // 0: every file goes to TMPDIR
			t.Error(err)
		}
		written = files(t, os.TempDir())
	}
	for _, c := range []struct {
		name   string
		l      *fixedLimiter
		opts   []handler.Option
		panics bool
	}{
		{name: "a request that passes", l: &fixedLimiter{result: allowed}},
		{name: "a handler that panics", l: &fixedLimiter{result: allowed}, panics: true},
		{name: "a refusal in a dry run", l: &fixedLimiter{result: refused}, opts: []handler.Option{handler.DryRun()}},
		{name: "no decision in a dry run", l: fails(limiter.ErrMisconfigured), opts: []handler.Option{handler.DryRun()}},
		{name: "a store that failed", l: fails(limiter.ErrNotApplied), opts: []handler.Option{handler.FailOpen()}},
		{name: "a skipped request", l: fails(nil), opts: []handler.Option{handler.Skip(func(*http.Request) bool { return true })}},
		{name: "a refusal of the application's own", l: &fixedLimiter{result: refused}, opts: []handler.Option{
			handler.Refusal(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parse(r) })),
		}},
		{name: "a hook that reads the form", l: &fixedLimiter{result: refused}, opts: []handler.Option{
			handler.OnRefusal(func(r *http.Request, _ limiter.Result) { parse(r) }),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			written = 0
			called, pattern := false, ""
			mux := http.NewServeMux()
			mux.HandleFunc("POST /upload", func(_ http.ResponseWriter, r *http.Request) {
				parse(r)
				called = true
				if c.panics {
					panic("a bug")
				}
			})
			limit := handler.New(c.l, oneKey, c.opts...)
			limited := limit(limit(mux))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if c.panics && recover() == nil {
						t.Error("the panic is gone")
					}
					pattern = r.Pattern
				}()
				limited.ServeHTTP(w, r)
			}))
			body, contentType := upload(t)
			resp, err := server.Client().Post(server.URL+"/upload", contentType, body)
			must(t, err)
			_ = resp.Body.Close()
			server.Close() // waits until the server has removed what it removes
			if left := files(t, dir); written != 1 || left != 0 {
				t.Errorf("of %d files in TMPDIR %d are left; want none of 1", written, left)
			}
			if called && pattern != "POST /upload" {
				t.Errorf("middleware outside of the limiter sees the pattern %q", pattern)
			}
		})
	}
}
