package sqlite_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// FuzzPath checks that Open rejects a path, or makes a URI that SQLite reads as that path, without a
// parameter.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"", "app.db", ":memory:", ":memory:.db", "file:app.db?mode=ro", "FILE:x", "/var/lib/app.db", "//server/share/app.db", "///x",
		"C:/Users/a b.db", "C:app.db", "c:", "a?mode=memory&cache=shared", "a#b", "a%00b", "a%3fmode=ro", "\x00", "nul\x00.db", "\xff", "ä", "a&b=c;d", "a\\b", "..", "./x", "a\nb",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		store, err := sqlite.Open(path)
		wrong := path == "" || strings.HasPrefix(path, "file:") || strings.Contains(path, "\x00")
		if wrong != errors.Is(err, limiter.ErrInvalid) || wrong != (err != nil) {
			t.Fatalf("Open(%q): %v, want ErrInvalid: %t", path, err, wrong)
		}
		if err != nil {
			return
		}
		must(t, store.Close())
		uri := sqlite.FileURI(path)
		read, err := asSQLite(uri)
		if drive := len(path) > 2 && path[0] != '/' && path[1:3] == ":/"; drive { // SQLite drops the slash before it, on Windows
			read = strings.TrimPrefix(read, "/")
		}
		if err != nil || read != path {
			t.Errorf("%q is written as %s, which is read as %q (%v)", path, uri, read, err)
		}
		// And by another reader.
		if u, err := url.Parse(uri); err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			t.Errorf("%q is written as %s, which is %+v (%v)", path, uri, u, err)
		}
	})
}

// asSQLite reads a URI as sqlite3ParseUri does: an authority is empty or "localhost", the
// path ends at ? or #, %HH is a byte, and %00 ends it.
func asSQLite(uri string) (string, error) {
	rest, ok := strings.CutPrefix(uri, "file:")
	if !ok {
		return "", errors.New("no URI")
	}
	if authority, ok := strings.CutPrefix(rest, "//"); ok {
		slash := strings.IndexByte(authority, '/')
		if slash < 0 || slash > 0 && authority[:slash] != "localhost" {
			return "", fmt.Errorf("authority in %q", authority)
		}
		rest = authority[slash:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return "", fmt.Errorf("parameters %q", rest[i:])
	}
	path, err := url.PathUnescape(rest)
	if err != nil || strings.Contains(path, "\x00") {
		return "", fmt.Errorf("%q: %w", rest, err)
	}
	return path, nil
}
