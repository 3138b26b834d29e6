package postgres_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/postgres"
)

// FuzzDSN checks that whatever is wrong with a DSN, the error does not tell the password,
// not even of one that was not encoded as it should have been.
func FuzzDSN(f *testing.F) {
	for _, rest := range []string{
		"", "?sslmode=bogus", "?pool_max_conns=x", "?pool_max_conn_lifetime=%zz", "?connect_timeout=-", "?target_session_attrs=x",
		"?sslmode=verify-full&sslrootcert=/absent", "?default_query_exec_mode=x", "?pool_min_conns=9&pool_max_conns=1", "?sslmode=require&sslkey=x",
	} {
		for form := range uint8(6) {
			f.Add(form, "", "", "h", rest)
			f.Add(form, "a@", ":b", "h:port", rest)
			f.Add(form, "/", "#?", "h1,h2:1", rest)
			f.Add(form, "%", "%zz", "[::1", rest)
			f.Add(form, "my ", " 'x", "", strings.ReplaceAll(strings.TrimPrefix(rest, "?"), "&", " "))
		}
	}
	const password = "kTq9zWvX7pLm"
	traces := keyleak.Of(password)
	f.Fuzz(func(t *testing.T, form uint8, before, after, host, rest string) {
		in := before + password + after
		dsn := map[uint8]string{
			0: "postgres://u:" + in + "@" + host + "/db" + rest,
			1: "postgresql://" + in + "@" + host + "/" + rest,
			2: "host=" + host + " password=" + in + " " + rest,
			3: "host=" + host + " password='" + in + "' " + rest,
			4: "postgres://u@" + host + "/db?password=" + in + "&" + strings.TrimPrefix(rest, "?"),
			5: host + ":" + in + rest,
		}[form%6]
		store, err := postgres.Open(dsn)
		if err == nil {
			must(t, store.Close())
			return
		}
		if !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", dsn, err)
		}
		if found := traces.In([]byte(keyleak.Text(err))); len(found) > 0 {
			t.Errorf("Open(%q) tells the password as %q: %v", dsn, found, err)
		}
	})
}

// FuzzSchema checks that statements for one schema and for another differ in the quoted
// name alone, and that no name becomes anything else.
func FuzzSchema(f *testing.F) {
	for _, seed := range []string{
		"public", "user", "_", "a", strings.Repeat("s", 48), "s1", `a"; DROP TABLE x; --`, "a.b", "A", "", "a\x00", "limiter_token_buckets", "é", "$1",
	} {
		f.Add(seed)
	}
	public := postgres.Statements("public", true)
	f.Fuzz(func(t *testing.T, name string) {
		if _, err := postgres.Open(nowhere, postgres.WithSchema(name)); err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("%q: %v, want ErrInvalid", name, err)
			}
			return
		}
		got := postgres.Statements(name, true)
		for statement, text := range got {
			got[statement] = strings.ReplaceAll(text, `"`+name+`".`, `"public".`)
		}
		if !maps.Equal(got, public) {
			t.Errorf("%q changes more than the name of the schema", name)
		}
	})
}
