package postgres_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

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
				if _, err := conn.Prepare(t.Context(), "", text); err != nil {
					t.Errorf("%s: %v", name, err)
				}
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
	if _, err := conn.Exec(t.Context(), "SELECT pg_catalog.set_config('search_path', $1::text, false)", path); err != nil {
		t.Fatal(err)
	}
	return conn
}
