package main

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func service(t *testing.T, s settings) http.Handler {
	t.Helper()
	now := time.Now() // the clock stands still, so nothing refills
	h, err := routes(memory.New(memory.WithClock(func() time.Time { return now })), s.client(), policies)
	must(t, err)
	return h
}

// send sends a request from an address, with a form unless it is empty, and values of X-Forwarded-For.
func send(h http.Handler, from, method, target, form string, forwarded ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form))
	r.RemoteAddr = from
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, value := range forwarded {
		r.Header.Add("X-Forwarded-For", value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func credentials(user, password string) string {
	return url.Values{"user": {user}, "password": {password}}.Encode()
}

func TestEachRouteSendsItsOwnLimits(t *testing.T) {
	t.Parallel()
	const right, wrong = "user=alice&password=open+sesame", "user=alice&password=guess"
	for _, c := range []struct {
		method, path, form string
		status             int
		policy, quota      string
	}{
		{"GET", "/", "", 200, `"page";q=10;w=10`, `"page";r=9;t=1`},
		{"HEAD", "/", "", 200, `"page";q=10;w=10`, `"page";r=9;t=1`},
		{"GET", "/search?q=go", "", 200, `"search";q=10;w=10`, `"search";r=9;t=1`},
		{"POST", "/export", "", 200, `"export-burst";q=3;w=6, "export-day";q=20;w=86400`, `"export-burst";r=2;t=2, "export-day";r=19;t=`},
		{"POST", "/login", right, 200, "", ""},
		{"POST", "/login", wrong, 401, "", ""},
		{"POST", "/login", "user=+&password=guess", 400, "", ""},
		{"POST", "/login", "user=" + strings.Repeat("a", maxBody), 400, "", ""},
		{
			"GET", "/limits", "", 204,
			`"search";q=10;w=10, "export-burst";q=3;w=6, "export-day";q=20;w=86400, "login-address";q=20;w=60, "page";q=10;w=10`,
			`"search";r=10, "export-burst";r=3, "export-day";r=20, "login-address";r=20, "page";r=10`,
		},
		{"GET", "/health", "", 204, "", ""},
		{"GET", "/elsewhere", "", 404, "", ""},
		{"GET", "/login", "", 405, "", ""},
	} {
		resp := send(service(t, settings{}), "192.0.2.1:1234", c.method, c.path, c.form)
		testenv.Equal(t, resp.Code, c.status, c.method, c.path)
		policy, quota := resp.Header()["Ratelimit-Policy"], resp.Header()["Ratelimit"]
		if c.policy == "" {
			testenv.Equal(t, len(policy)+len(quota), 0, c.method, c.path, "fields")
			continue
		}
		// The test ignores the time to the end of the day, which is the last parameter.
		if len(policy) != 1 || policy[0] != c.policy || len(quota) != 1 || !strings.HasPrefix(quota[0], c.quota) {
			t.Errorf("%s %s: %q and %q, want one field each: %s and %s", c.method, c.path, policy, quota, c.policy, c.quota)
		}
	}
}

func TestAccountLimitHoldsForAllAddresses(t *testing.T) {
	t.Parallel()
	h := service(t, settings{})
	names := []string{"Alice@example.com", "alice@example.com", " ALICE@example.com ", "\talice@EXAMPLE.com\n", "Alice@Example.Com"}
	for i, name := range names {
		from := "192.0.2." + string(rune('1'+i)) + ":1"
		if resp := send(h, from, "POST", "/login", credentials(name, "guess")); resp.Code != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %d, want 401", i+1, resp.Code)
		}
	}
	// The right password is also refused. Otherwise an attacker would learn it.
	for _, password := range []string{"guess", password} {
		resp := send(h, "203.0.113.9:1", "POST", "/login", credentials("alice@example.com", password))
		testenv.Equal(t, []any{resp.Code, resp.Header().Get("Retry-After")}, []any{http.StatusTooManyRequests, "60"}, password)
		for field, lines := range resp.Header() {
			if strings.Contains(strings.Join(lines, ""), "login-account") {
				t.Errorf("%s names the limit of the account: %q", field, lines)
			}
		}
	}
	testenv.Equal(t, send(h, "203.0.113.9:1", "POST", "/login", credentials("bob@example.com", password)).Code, http.StatusOK, "another account")
}

func TestRefusalsAndSuccessesAreNotCharged(t *testing.T) {
	t.Parallel()
	h := service(t, settings{})
	for _, c := range []struct {
		times, status int
		path, form    string
	}{
		{3, 200, "/export", ""},
		{3, 429, "/export", ""},
		{30, 200, "/login", credentials("alice", password)}, // more than either limit
		{5, 401, "/login", credentials("alice", "guess")},
		{3, 429, "/login", credentials("alice", "guess")},
	} {
		for i := range c.times {
			testenv.Equal(t, send(h, "192.0.2.1:1", "POST", c.path, c.form).Code, c.status, c.path, c.form, i)
		}
	}
	quotas := send(h, "192.0.2.1:1", "GET", "/limits", "").Header().Get("Ratelimit")
	testenv.Contains(t, quotas, `"export-burst";r=0;`, `"export-day";r=17;`, `"login-address";r=15;`)
	for i := range 15 { // each account once, so that it is the address that is used up
		testenv.Equal(t, send(h, "192.0.2.1:1", "POST", "/login", credentials("user"+strconv.Itoa(i), "guess")).Code, 401, "user", i)
	}
	testenv.Equal(t, send(h, "192.0.2.1:1", "POST", "/login", credentials("bob", password)).Code, 429, "bob")
}

func TestClientBehindProxies(t *testing.T) {
	t.Parallel()
	forwarded := []string{"198.51.100.66, 203.0.113.7, 198.51.100.1"} // the first is the client's own invention
	for _, c := range []struct {
		settings settings
		header   []string
		same     string // a request that comes out of the same bucket
		status   int
	}{
		{settings{}, forwarded, "192.0.2.1", 200},
		{settings{trustedHops: 2}, forwarded, "203.0.113.7, 10.0.0.1", 200},
		{settings{trustedHops: 2}, []string{"203.0.113.7"}, "", 400},
		{settings{trustedHops: 1}, nil, "", 400},
		{settings{trustedHops: 1, inLambda: true}, forwarded, "192.0.2.1", 200}, // the event says it
	} {
		h := service(t, c.settings)
		testenv.Equal(t, send(h, "192.0.2.1:1", "GET", "/search", "", c.header...).Code, c.status, c.settings, c.header)
		if c.status != http.StatusOK {
			continue
		}
		from := "192.0.2.2:1"
		if c.settings.trustedHops == 0 || c.settings.inLambda {
			from = c.same + ":2"
		}
		testenv.Equal(t, send(h, from, "GET", "/search", "", c.same).Header().Get("Ratelimit"), `"search";r=8;t=1`, c.settings, c.header, c.same)
	}
}

// The program neither keeps a body of 100 MB in memory nor writes it to files.
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
