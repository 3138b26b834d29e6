package postgres_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

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
