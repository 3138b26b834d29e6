package postgres_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/postgres"
)

// camel is how the file of a statement is called in Go: bucket_take.sql is
// bucketTake.
func camel(file string) string {
	return regexp.MustCompile(`_.`).ReplaceAllStringFunc(strings.TrimSuffix(file, ".sql"),
		func(s string) string { return strings.ToUpper(s[1:]) })
}

func TestStatements_are_the_files_and_rendered_to_the_end(t *testing.T) {
	t.Parallel()
	texts := postgres.Statements("limits", false)
	for _, file := range postgres.Files() {
		if texts[camel(file)] == "" {
			t.Errorf("nothing uses sql/%s", file)
		}
	}
	if len(texts) != len(postgres.Files()) {
		t.Errorf("%d statements come from %d files", len(texts), len(postgres.Files()))
	}
	tables := regexp.MustCompile(`(\S*)\blimiter_(token_buckets|fixed_windows|goose_version)`)
	for name, text := range texts {
		// A comment at the end of a statement swallows what a driver puts after it.
		for _, left := range []string{"--", "/*", "*/", ";", "%!"} {
			if strings.Contains(text, left) {
				t.Errorf("%s has %q left in it:\n%s", name, left, text)
			}
		}
		for _, table := range tables.FindAllStringSubmatch(text, -1) {
			if table[1] != `"limits".` {
				t.Errorf("%s names %s without the schema", name, table[0])
			}
		}
		for _, parameter := range regexp.MustCompile(`\$\d+(::\w+)?`).FindAllStringSubmatch(text, -1) {
			if parameter[1] == "" {
				t.Errorf("%s has %s without a type", name, parameter[0])
			}
		}
		for _, session := range []string{"synchronous_commit", "set_config", "advisory", "TEMP", "now()", "current_timestamp"} {
			// What is set for a merged statement alone ends with it.
			text = strings.Replace(text, "pg_catalog.set_config('lock_timeout', $8::text, true)", "", 1)
			if strings.Contains(text, session) {
				t.Errorf("%s has %s in it", name, session)
			}
		}
	}
}

func TestStatements_that_commit_asynchronously_are_the_takes(t *testing.T) {
	t.Parallel()
	sync := postgres.Statements("public", false)
	for name, text := range postgres.Statements("public", true) {
		takes := slices.Contains([]string{
			"bucketTake", "bucketTakes", "windowTake", "windowTakes", "windowCount",
		}, name)
		if got := strings.Count(text, "set_config('synchronous_commit', 'off', true)"); takes && got != 1 || !takes && text != sync[name] {
			t.Errorf("%s: %d times\n%s", name, got, text)
		}
	}
}

func TestStatements_are_understood_by_the_server(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		conn := connect(t, d.dsn)
		for _, async := range []bool{false, true} {
			for name, text := range postgres.Statements(schema, async) {
				if _, err := conn.Prepare(t.Context(), "", text); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}
