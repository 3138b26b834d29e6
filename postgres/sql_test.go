package postgres_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// everyStatement returns the statements of stores with and without WithCitus that PostgreSQL alone
// can prepare.
func everyStatement(schema string, async bool) map[string]string {
	texts := postgres.Statements(schema, async)
	for name, text := range postgres.CitusStatements(schema) {
		if name != "distributed" { // it reads a catalog of Citus
			texts[name+" on Citus"] = text
		}
	}
	return texts
}

func TestStatementsAreRendered(t *testing.T) {
	t.Parallel()
	texts := everyStatement("limits", false)
	texts["distributed"] = postgres.CitusStatements("limits")["distributed"]
	all := strings.Join(slices.Collect(maps.Values(texts)), "\n")
	marked := regexp.MustCompile(`--|/\*|\{|\$[a-z]`) // comments, and what is replaced
	for file, text := range postgres.Files() {
		for line := range strings.Lines(text) {
			if !marked.MatchString(line) && !strings.Contains(all, strings.TrimSpace(line)) {
				t.Errorf("no statement has this line of sql/%s: %s", file, line)
			}
		}
	}
	for name, text := range texts {
		// A comment at the end of a statement swallows what a driver puts after it.
		for _, left := range []string{"--", "/*", "*/", ";", "%!", "{", "}"} {
			if strings.Contains(text, left) {
				t.Errorf("%s has %q left in it:\n%s", name, left, text)
			}
		}
		for _, parameter := range regexp.MustCompile(`\$\d+(::\w+)?`).FindAllStringSubmatch(text, -1) {
			if parameter[1] == "" {
				t.Errorf("%s has %s without a type", name, parameter[0])
			}
		}
	}
}

func TestAsyncStatements(t *testing.T) {
	t.Parallel()
	taking := regexp.MustCompile("(Takes?|Count)$|^all")
	sync := postgres.Statements("public", false)
	for name, text := range postgres.Statements("public", true) {
		takes := taking.MatchString(name)
		if got := strings.Count(text, "set_config('synchronous_commit', 'off', true)"); takes && got != 1 || !takes && text != sync[name] {
			t.Errorf("%s: %d times\n%s", name, got, text)
		}
	}
}

// The list of what a pooler must do, in docs/operations.md, depends on this.
func TestStatementsKeepTheSession(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`(?i)advisory_(un)?lock|\b(LISTEN|UNLISTEN|NOTIFY|TEMP|TEMPORARY|PREPARE|DECLARE|CURSOR|nextval|setval|currval|search_path|RESET|DISCARD)\b|^\s*SET\b`)
	set := regexp.MustCompile(`set_config\('\w+', .*?, (true|false)\)`)
	settings := 0
	for _, async := range []bool{false, true} {
		for name, text := range everyStatement("limits", async) {
			testenv.Equal(t, forbidden.FindString(text), "", name, text)
			calls := set.FindAllStringSubmatch(text, -1)
			testenv.Equal(t, strings.Count(text, "set_config"), len(calls), name, "calls of set_config", text)
			for _, call := range calls {
				if settings++; call[1] != "true" {
					t.Errorf("%s sets a setting beyond its transaction: %s", name, call[0])
				}
			}
		}
	}
	if settings == 0 {
		t.Error("no statement sets anything; the pattern is wrong")
	}
}

// syntax looks like a call, but no schema has it: the grammar knows unnest of several arrays at once.
var syntax = []string{"coalesce", "greatest", "least", "unnest"}

func TestFunctionsHaveTheirSchema(t *testing.T) {
	t.Parallel()
	for name, text := range everyStatement("public", true) {
		for _, call := range regexp.MustCompile(`([\w.]+)\(`).FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(call[1], "pg_catalog.") && !slices.Contains(syntax, call[1]) {
				t.Errorf("%s calls %s without its schema", name, call[1])
			}
		}
	}
}

func TestOperatorsAreOfPgCatalog(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema, evil := d.schema(t), d.shadow(t)
		conn := d.connectOn(t, evil)
		for _, async := range []bool{false, true} {
			for name, text := range everyStatement(schema, async) {
				testenv.ErrorIs(t, testenv.ErrorOf(conn.Prepare(t.Context(), "", text)), nil, name)
			}
		}
		// A number times an integer literal needs a conversion.
		const hijacked = "SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint"
		if _, err := conn.Prepare(t.Context(), "", hijacked); err == nil {
			t.Error("the traps catch nothing, so this test proves nothing")
		}
	})
}

// SECURITY.md names this limit. If a search path has another schema before pg_catalog, that schema gets the
// operators of every statement of the session.
func TestSearchPathBeforePgCatalog(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		evil := fmt.Sprintf("evil%d", schemas.Add(1))
		d.exec(t, fmt.Sprintf(`CREATE SCHEMA %s;
			CREATE FUNCTION %[1]s.trap(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END';
			CREATE OPERATOR %[1]s.+ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = %[1]s.trap)`, evil))
		for path, hijacked := range map[string]bool{evil: false, "pg_catalog, " + evil: false, evil + ", pg_catalog": true} {
			_, err := d.connectOn(t, path).Exec(t.Context(), "SELECT 1::bigint + 1::bigint")
			if got := err != nil && strings.Contains(err.Error(), "hijacked"); got != hijacked {
				t.Errorf("search_path %s: %v, hijacked %t, want %t", path, err, got, hijacked)
			}
		}
	})
}

// connectOn returns a connection with a search_path.
func (d *database) connectOn(t *testing.T, path string) *pgx.Conn {
	t.Helper()
	conn := connect(t, d.dsn)
	must(t, testenv.ErrorOf(conn.Exec(t.Context(), "SELECT pg_catalog.set_config('search_path', $1::text, false)", path)))
	return conn
}

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
		testenv.ErrorIs(t, err, limiter.ErrInvalid, fmt.Sprintf("Open(%q)", dsn))
		testenv.Equal(t, traces.In([]byte(keyleak.Text(err))), nil, fmt.Sprintf("traces of the password of %q", dsn), err)
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
			testenv.ErrorIs(t, err, limiter.ErrInvalid, name)
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
