package generate

import (
	"slices"
	"strings"
	"testing"
)

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
