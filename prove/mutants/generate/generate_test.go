package generate

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

// small is a module with one place for each operator, and the mutants of each declaration. The last ones have
// nothing to change, cannot be changed, or do not compile if they are changed.
var small = map[string][]string{
	"type number int":       nil,
	"var start = number(3)": {"|constant|number(3)|number(3) + 1"},
	"func boundary(a, b number) bool { return a < b }": {"boundary|boundary|a < b|a <= b"},
	"func operand(a, b number) number { return a/b + start }": {
		"operand|operand|a/b + start|a/b - start", "operand|operand|a/b + start|a * b + start",
	},
	"func both(a, b bool) bool { return a && b }": {"both|operand|a && b|a || b", "both|condition|a && b|a", "both|condition|a && b|b"},
	"func deferred() (sum int) { defer func() { sum++ }(); return sum }": {
		"deferred|statement|defer func() { sum++ }()|", "deferred|operand|sum++|sum--", "deferred|statement|sum++|",
	},
	"func loop(list []int) (sum int) { for _, n := range list { if n == 9 { continue }; sum += n }; return sum }": {
		"loop|condition|if n == 9|if true", "loop|condition|if n == 9|if false", "loop|constant|n == 9|n == 9 + 1",
		"loop|statement|continue|", "loop|operand|sum += n|sum -= n", "loop|statement|sum += n|",
	},
	"func spawn() { go close(make(chan int)) }": {"spawn|statement|go close(make(chan int))|"},
	`func branch(a int) string { switch { case a > 5: return "more" }; return "less" }`: {
		"branch|condition|if a > 5|if true", "branch|condition|if a > 5|if false",
		"branch|boundary|a > 5|a >= 5", "branch|constant|a > 5|a > 5 + 1",
	},
	`func name(x string) string { switch x { case "y": return "none" }; return "less" }`: {`name|constant|"y"|"y" + "?"`},
	"func arguments(a, b int) (int, error) { return min(a, b), check(a, b) }": {
		"arguments|min and max|min(a, b)|max(a, b)", "arguments|min and max|min(a, b)|a", "arguments|min and max|min(a, b)|b",
		"arguments|error|return check(a, b)|return nil", "arguments|arguments|check(a, b)|check(b, a)",
	},
	"func check(a, b int) error { if err := other(b, a); err != nil { return err }; return nil }": {
		"check|arguments|other(b, a)|other(a, b)", "check|condition|if err != nil|if true", "check|condition|if err != nil|if false",
		"check|error|return err|return nil",
	},
	`func other(int, int) error { return errors.New("other") }`: {`other|error|return errors.New("other")|return nil`},
	"func shadowed(number int) bool { return other(number, number) == nil }": {
		"shadowed|boundary|other(number, number) == nil|other(number, number) != nil",
	},
	"func hidden(number int) bool { return added(1, 2) == 3 }": {"hidden|boundary|added(1, 2) == 3|added(1, 2) != 3"},
	"func added(a, b number) number { return a + b }":          {"added|operand|a + b|a - b"},
	`func recovers() (r any) { defer func() { r = recover() }(); panic("here") }`: {
		"recovers|statement|defer func() { r = recover() }()|", "recovers|statement|r = recover()|",
	},
	"const limit = 5": nil,
	`var table = [limit]string{limit - 1: "last"}`: nil,
	"func capacity(n int) []string { return make([]string, 0, n+limit) }": {
		"capacity|constant|make([]string, 0, n+limit)|make([]string, 0 + 1, n+limit)",
	},
	"func largest() uint8 { return 255 }": nil,
}

// identities returns those of the mutants of some declarations, without the file.
func identities(t *testing.T, declarations ...string) []string {
	t.Helper()
	dir := t.TempDir()
	text := "package small\n\nimport \"errors\"\n\n" + strings.Join(declarations, "\n\n")
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/small\n\ngo 1.26.0\n"), 0o644))
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "small.go"), []byte(text), 0o644))
	r, err := Packages(t.Context(), dir, []string{"."})
	testenv.Must(t, err)
	var list []string
	for _, m := range r.Mutants {
		_, id, _ := strings.Cut(m.Identity(), "\t")
		list = append(list, strings.ReplaceAll(id, "\t", "|"))
	}
	slices.Sort(list)
	return list
}

func TestOperators(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-buildvcs=false")
	declarations := slices.Sorted(maps.Keys(small))
	var want []string
	for _, ids := range small {
		for _, id := range ids {
			want = append(want, id+"|1")
		}
	}
	slices.Sort(want)
	got := identities(t, declarations...)
	if diff := slices.DeleteFunc(slices.Concat(got, want), func(id string) bool { return slices.Contains(got, id) == slices.Contains(want, id) }); len(diff) > 0 || len(got) != len(want) {
		t.Errorf("%d mutants, want %d; these are only in one of the lists:\n%s", len(got), len(want), strings.Join(diff, "\n"))
	}
	more := identities(t, append(declarations, "", "// More lines.", "func another(a, b int) bool { return a > b }")...)
	want = slices.Sorted(slices.Values(append(want, "another|boundary|a > b|a >= b|1")))
	testenv.Equal(t, strings.Join(more, "\n"), strings.Join(want, "\n"), "the identities, with lines added elsewhere")
}

func TestTextOperators(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string // the texts of all mutants
	}{
		"conditions": {
			"SELECT a FROM t WHERE a = $1 AND (b < 2 OR c BETWEEN 0 AND d)",
			[]string{
				"WHERE (true OR a = $1) AND", "a = $1 OR (b", "AND (true OR (b < 2 OR c BETWEEN 0 AND d))",
				"((false AND b < 2) OR", "b <= 2", "b < 3", "2 AND c", "OR (false AND c BETWEEN 0 AND d)", "BETWEEN 1 AND",
			},
		},
		"assignments": {
			"INSERT INTO t AS b (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET a = greatest(b.a, excluded.a) + $2, d = 1 WHERE b.d > $3 RETURNING 1",
			[]string{
				"SET a = CASE WHEN 1 = 1 THEN b.a ELSE greatest(b.a, excluded.a) + $2 END, d", "= least(b.a", ") - $2", ", d = CASE WHEN 1 = 1 THEN b.d ELSE 1 END WHERE",
				"d = 2", "(true OR b.d > $3)", "b.d >= $3",
			},
		},
		"words": {
			"SELECT coalesce($1, now()), count(*) FROM t WHERE NOT EXISTS (SELECT FROM u) ORDER BY a DESC FOR UPDATE SKIP LOCKED",
			[]string{"coalesce(now(), $1)", "WHERE (true OR NOT EXISTS (SELECT FROM u)) ORDER", "WHERE  EXISTS", "a ASC FOR", "DESC ", "UPDATE "},
		},
		"order": {
			"CREATE TABLE t (a int NOT NULL) STRICT, WITHOUT ROWID; SELECT t.a FROM t ORDER BY t.a, b",
			[]string{"(a int )", ")  WITHOUT", "BY t.a DESC, b"},
		},
		"choices": {
			"SELECT CASE WHEN a THEN 1 ELSE max(0, b) END, CASE kind WHEN 'x' THEN b IS NULL END FROM t -- where a < 1\n",
			[]string{"WHEN (true OR a) THEN", "WHEN (false AND a) THEN", "THEN 2", "min(0", "max(1", "IS NOT NULL"},
		},
		"marks stay": {
			"SELECT /* columns */, /* lock_timeout */true FROM /* table */ WHERE a = $1 AND /* unchanged */ AND /* lock_timeout */true",
			[]string{"(true OR a = $1)", "$1 OR /*", "(true OR /* unchanged */)", "*/ OR /* lock"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &sqlText{name: "t.sql", text: c.text, tokens: tokenize(c.text)}
			var got []string
			s.found = func(_, _, _, _ string, from, to int, text string) { got = append(got, c.text[:from]+text+c.text[to:]) }
			s.find()
			for _, want := range c.want {
				testenv.Equal(t, slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, want) }), true, "a mutant has", want)
			}
			testenv.Equal(t, len(got), len(c.want), strings.Join(got, "\n"))
		})
	}
}
