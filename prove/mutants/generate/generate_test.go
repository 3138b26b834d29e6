package generate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

// small is a module with one place for each operator.
const small = `package small

import "errors"

type number int

var start = number(3)

func boundary(a, b number) bool { return a < b }

func operand(a, b number) number { return a/b + start }

func both(a, b bool) bool { return a && b }

func statement(list []int) (sum int) {
	defer func() { sum++ }()
	for _, n := range list {
		if n == 9 {
			continue
		}
		sum += n
	}
	go close(make(chan int))
	return sum
}

func branch(a int) string {
	switch {
	case a > 5:
		return "more"
	}
	switch name := "x"; name {
	case "y":
		return "none"
	}
	return "less"
}

func arguments(a, b int) (int, error) { return min(a, b), check(a, b) }

func check(a, b int) error {
	if err := other(b, a); err != nil {
		return err
	}
	return nil
}

func other(int, int) error { return errors.New("other") }

// What follows has nothing to change, cannot be changed, or does not compile if it is changed.

const limit = 5

var table = [limit]string{limit - 1: "last"}

func recovers() (r any) {
	defer func() { r = recover() }()
	panic("here")
}

func capacity(n int) []string { return make([]string, 0, n+limit) }

func shadowed(number int) bool { return other(number, number) == nil }

func largest() uint8 { return 255 }

func hidden(number int) bool { return added(1, 2) == 3 }

func added(a, b number) number { return a + b }
`

func module(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-buildvcs=false")
	dir := t.TempDir()
	files["go.mod"] = "module example.com/small\n\ngo 1.26.0\n"
	for name, text := range files {
		testenv.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func identities(t *testing.T, files map[string]string) []string {
	t.Helper()
	r, err := Packages(t.Context(), module(t, files), []string{"."})
	testenv.Must(t, err)
	var list []string
	for _, m := range r.Mutants {
		list = append(list, m.Identity())
	}
	return list
}

func TestOperators(t *testing.T) {
	want := []string{
		"|constant|number(3)|number(3) + 1",
		"boundary|boundary|a < b|a <= b",
		"operand|operand|a/b + start|a/b - start",
		"operand|operand|a/b + start|a * b + start",
		"both|operand|a && b|a || b",
		"both|condition|a && b|a",
		"both|condition|a && b|b",
		"statement|statement|defer func() { sum++ }()|",
		"statement|operand|sum++|sum--",
		"statement|statement|sum++|",
		"statement|condition|if n == 9|if true",
		"statement|condition|if n == 9|if false",
		"statement|constant|n == 9|n == 9 + 1",
		"statement|statement|continue|",
		"statement|operand|sum += n|sum -= n",
		"statement|statement|sum += n|",
		"statement|statement|go close(make(chan int))|",
		"branch|condition|if a > 5|if true",
		"branch|condition|if a > 5|if false",
		"branch|boundary|a > 5|a >= 5",
		"branch|constant|a > 5|a > 5 + 1",
		`branch|constant|"y"|"y" + "?"`,
		"arguments|min and max|min(a, b)|max(a, b)",
		"arguments|min and max|min(a, b)|a",
		"arguments|min and max|min(a, b)|b",
		"arguments|error|return check(a, b)|return nil",
		"arguments|arguments|check(a, b)|check(b, a)",
		"check|arguments|other(b, a)|other(a, b)",
		"check|condition|if err != nil|if true",
		"check|condition|if err != nil|if false",
		"check|error|return err|return nil",
		`other|error|return errors.New("other")|return nil`,
		"recovers|statement|defer func() { r = recover() }()|",
		"recovers|statement|r = recover()|",
		"capacity|constant|make([]string, 0, n+limit)|make([]string, 0 + 1, n+limit)",
		"shadowed|boundary|other(number, number) == nil|other(number, number) != nil",
		"hidden|boundary|added(1, 2) == 3|added(1, 2) != 3",
		"added|operand|a + b|a - b",
	}
	got := map[string]bool{}
	for _, id := range identities(t, map[string]string{"small.go": small}) {
		fields := strings.Split(id, "\t")
		got[strings.Join(fields[1:5], "|")] = true
	}
	for _, w := range want {
		if !got[w] {
			t.Errorf("no mutant %s", w)
		}
		delete(got, w)
	}
	for id := range got {
		t.Errorf("the mutant %s is not expected", id)
	}
}

func TestIdentities(t *testing.T) {
	before := identities(t, map[string]string{"small.go": small})
	head, rest, _ := strings.Cut(small, "func boundary")
	moved := head + "// More lines.\n\nfunc another(a, b int) bool { return a > b }\n\nfunc boundary" + rest
	after := identities(t, map[string]string{"small.go": moved})
	for _, id := range before {
		if !slices.Contains(after, id) {
			t.Errorf("when lines are added elsewhere, this identity is lost: %s", id)
		}
	}
	if len(after) != len(before)+1 {
		t.Errorf("with one more comparison there are %d mutants, want %d", len(after), len(before)+1)
	}
	seen := map[string]bool{}
	for _, id := range after {
		if seen[id] {
			t.Errorf("two mutants have the identity %s", id)
		}
		seen[id] = true
	}
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
			[]string{
				"(true OR a = $1)", "$1 OR /*", "(true OR /* unchanged */)", "*/ OR /* lock",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &sqlText{name: "t.sql", text: c.text, tokens: tokenize(c.text)}
			var got []string
			s.found = func(_, _, _, _ string, from, to int, text string) { got = append(got, c.text[:from]+text+c.text[to:]) }
			s.find()
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, want) }) {
					t.Errorf("no mutant has %q", want)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("there are %d mutants, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
		})
	}
}
