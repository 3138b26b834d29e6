package migrations

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestCanonicalSQLKeepsWhatHasAMeaning(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"CREATE TABLE a (b TEXT NOT NULL)":              "create table a(b text not null)",
		"create\ttable \"a\"\r\n([b] `text` not  NULL)": "create table a(b text not null)",
		"a -- it's a comment\n b /* ; ' */ c":           "a b c",
		"a 'It''s -- no  COMMENT' b":                    "a 'It''s -- no  COMMENT' b",
		"CHECK (a >= 1 AND b<2)":                        "check(a>=1 and b<2)",
		"unfinished 'text":                              "unfinished 'text",
		`unfinished "name`:                              "unfinished name",
		"unfinished /* comment":                         "unfinished",
		"":                                              "",
	} {
		if got := canonical(sql); got != want {
			t.Errorf("canonical(%q) = %q, want %q", sql, got, want)
		}
	}
}

func TestATableOfSQLiteIsTakenApart(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]layout{
		`CREATE TABLE t (a TEXT DEFAULT '(,', "b" DECIMAL(1, 2), c, CONSTRAINT d CHECK (a IN ('x', 'y')), PRIMARY KEY (a, b), CHECK (c > 0), UNIQUE (c)) STRICT`: {
			{"t", "column", "a"}:                    "text default '(,'",
			{"t", "column", "b"}:                    "decimal(1,2)",
			{"t", "column", "c"}:                    "",
			{"t", "constraint", "d"}:                "check(a in('x','y'))",
			{"t", "constraint", "primary key(a,b)"}: "primary key(a,b)",
			{"t", "constraint", "check(c>0)"}:       "check(c>0)",
			{"t", "constraint", "unique(c)"}:        "unique(c)",
			{"t", "table", "t"}:                     "strict",
		},
		`CREATE TABLE t (a)`:                   {{"t", "column", "a"}: "", {"t", "table", "t"}: "with rowid"},
		`CREATE VIRTUAL TABLE t USING fts5(a)`: {{"t", "column", "a"}: "", {"t", "table", "t"}: "create virtual table t using fts5"},
		`CREATE VIRTUAL TABLE t USING dbstat`:  {{"t", "table", "t"}: "create virtual table t using dbstat"},
	} {
		got := layout{}
		got[object{"t", "table", "t"}] = got.addParts("t", canonical(sql))
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", sql, got, want)
		}
	}
}

func TestDropsRemovesViewsBeforeTables(t *testing.T) {
	t.Parallel()
	l := layout{}
	for _, o := range []object{{"a", "table", "a"}, {"b", "view", "b"}, {"c", "materialized view", "c"}, {"a", "column", "x"}, {"d", "index", "d"}} {
		l[o] = ""
	}
	want := []string{"DROP VIEW b", "DROP MATERIALIZED VIEW c", "DROP TABLE a", "DROP INDEX d"}
	if got := strings.Split(l.drops(func(name string) string { return name }), "; "); !slices.Equal(got, want) {
		t.Errorf("drops: %q, want %q", got, want)
	}
}
