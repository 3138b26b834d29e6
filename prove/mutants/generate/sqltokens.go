package generate

import (
	"regexp"
	"slices"
	"strings"
)

// token is a word, number, operator or the like of an SQL text.
type sqlToken struct {
	text     string
	from, to int
	depth    int // of parentheses and of CASE around it
}

// tokens matches what an SQL text is made of. A block comment that is left is a marker, which stands
// for a part of the statement.
var tokens = regexp.MustCompile(`--[^\n]*|/\*.*?\*/|'[^']*'|"[^"]*"|\$\w+|\?\d*|\d+(?:\.\d+)?(?:e\d+)?|[\pL_][\pL\d_]*(?:\{\w+\})?|<=|>=|<>|>>|::|\S`)

// tokenize divides a text. It leaves out comments.
func tokenize(text string) (list []sqlToken) {
	depth := 0
	for _, at := range tokens.FindAllStringIndex(text, -1) {
		t := sqlToken{text: text[at[0]:at[1]], from: at[0], to: at[1], depth: depth}
		switch {
		case strings.HasPrefix(t.text, "--"):
			continue
		case t.text == "(" || t.text == "CASE":
			depth++
		case t.text == ")" || t.text == "END":
			depth--
			t.depth = depth
		}
		list = append(list, t)
	}
	return list
}

type sqlText struct {
	name   string
	text   string
	tokens []sqlToken
	found  func(operator, fn, before, after string, from, to int, text string)
}

func (s *sqlText) is(i int, words ...string) bool {
	return i >= 0 && i < len(s.tokens) && slices.Contains(words, s.tokens[i].text)
}

// isValue reports whether the token i can end a value, so that an operator can follow.
func (s *sqlText) isValue(i int) bool {
	if i < 0 || s.is(i, "SELECT", "AS", "AND", "OR", "NOT", "WHERE", "WHEN", "THEN", "ELSE", "BETWEEN", "BY", "DISTINCT") {
		return false
	}
	return s.is(i, ")", "END") || strings.ContainsAny(s.tokens[i].text[:1], "$?'\"_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789}")
}

// close returns the token that ends what the token i begins: a parenthesis or CASE.
func (s *sqlText) close(i int) int {
	for j := i + 1; j < len(s.tokens); j++ {
		if s.tokens[j].depth == s.tokens[i].depth && s.is(j, ")", "END") {
			return j
		}
	}
	return len(s.tokens) - 1
}

// until returns the first token after i, at its depth, that is one of these words or that closes what
// i is in.
func (s *sqlText) until(i int, words ...string) int {
	depth := s.tokens[i].depth
	for j := i + 1; j < len(s.tokens); j++ {
		if s.tokens[j].depth < depth || s.tokens[j].depth == depth && s.is(j, words...) {
			return j
		}
	}
	return len(s.tokens)
}

func (s *sqlText) between(i, j int) string { return s.text[s.tokens[i].from:s.tokens[j-1].to] }

// within returns the name of the part of a text that the token i is in: a CTE, a section, or an
// object that is created.
func (s *sqlText) within(i int) string {
	for j := i; j >= 2; j-- {
		if s.tokens[j].depth == 0 && s.is(j, "(") && s.is(j-1, "AS", "MATERIALIZED") {
			if s.is(j-1, "MATERIALIZED") {
				j--
			}
			return s.tokens[j-2].text
		}
		if s.tokens[j].depth == 0 && s.is(j, ";", "UNION") {
			break
		}
		if s.is(j-2, "TABLE", "VIEW") {
			return s.tokens[j].text
		}
	}
	return ""
}

// part adds a mutant that replaces the tokens from i to before j.
func (s *sqlText) part(operator string, i, j int, after string) {
	s.found(operator, s.within(i), s.between(i, j), after, s.tokens[i].from, s.tokens[j-1].to, after)
}

// word adds a mutant that replaces a token, or tokens up to before j, and is described by the line.
func (s *sqlText) word(operator string, i, j int, after string) {
	from, to := s.tokens[i].from, s.tokens[j-1].to
	begin := strings.LastIndexByte(s.text[:from], '\n') + 1
	rest, _, _ := strings.Cut(s.text[to:], "\n")
	end := to + len(rest)
	s.found(operator, s.within(i), s.text[begin:end], s.text[begin:from]+after+s.text[to:end], from, to, after)
}
