package generate

import (
	"strconv"
	"strings"
)

// sqlBinary is what replaces an operator between two values.
var sqlBinary = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", ">>": "|", "|": "&",
}

func (s *sqlText) find() {
	for i := range s.tokens {
		s.operators(i)
		s.words(i)
		s.calls(i)
		s.clauses(i)
	}
}

func (s *sqlText) operators(i int) {
	text := s.tokens[i].text
	if other := sqlBinary[text]; other != "" && s.isValue(i-1) && (s.isValue(i+1) || s.is(i+1, "(", "CASE")) {
		operator := "operand"
		if text[0] == '<' || text == ">" || text == ">=" {
			operator = "boundary"
		}
		s.word(operator, i, i+1, other)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n+1 > 0 && !s.is(i-1, "RETURNING", "}") && !s.is(i+1, "}") {
		s.word("constant", i, i+1, strconv.FormatInt(n+1, 10))
	}
}

// words inverts and leaves out single words.
func (s *sqlText) words(i int) {
	marked := i > 0 && s.tokens[i-1].text == "/* lock_timeout */"
	switch text := s.tokens[i].text; {
	case (text == "true" || text == "false") && !marked && !s.is(i-1, "ON"):
		s.word("constant", i, i+1, map[string]string{"true": "false", "false": "true"}[text])
	case text == "NOT" && s.is(i-1, "IS"):
		s.word("condition", i, i+2, "NULL")
	case text == "NULL" && s.is(i-1, "IS"):
		s.word("condition", i, i+1, "NOT NULL")
	case text == "NOT" && s.is(i+1, "NULL"):
		s.word("statement", i, i+2, "")
	case text == "NOT" && !s.is(i-1, "IF"):
		s.word("condition", i, i+1, "")
	case text == "DESC":
		s.word("operand", i, i+1, "ASC")
	case text == "BY" && s.is(i-1, "ORDER"):
		last := i + 1
		for s.is(last+1, ".") {
			last += 2
		}
		if !s.is(last+1, "DESC") {
			s.word("operand", last, last+1, s.tokens[last].text+" DESC")
		}
	case text == "STRICT" && s.is(i+1, ","):
		s.word("statement", i, i+2, "")
	case text == "SKIP" && s.is(i+1, "LOCKED"):
		s.word("statement", i, i+2, "")
	case text == "FOR" && s.is(i+1, "UPDATE"):
		s.word("statement", i, s.until(i, ";"), "")
	}
}

// calls turns greatest into least, and the other way round, and swaps what coalesce chooses from.
func (s *sqlText) calls(i int) {
	if !s.is(i+1, "(") {
		return
	}
	end := s.close(i + 1)
	comma := s.until(i+2, ",")
	if comma >= end || s.is(i+2, "(") {
		return
	}
	switch other := map[string]string{"greatest": "least", "least": "greatest", "max": "min", "min": "max"}[s.tokens[i].text]; {
	case other != "":
		s.word("min and max", i, i+1, other)
	case s.is(i, "coalesce"):
		s.part("arguments", i, end+1, "coalesce("+s.between(comma+1, end)+", "+s.between(i+2, comma)+")")
	}
}

// clauses leaves out conditions, assignments, and whole statements of a migration.
func (s *sqlText) clauses(i int) {
	switch {
	case s.is(i, "WHERE"), s.is(i, "ON") && !s.is(i+1, "CONFLICT", "TABLE", "COLUMN", "true"):
		s.conditions(i+1, s.until(i, "RETURNING", "LIMIT", "FOR", "ORDER", "GROUP", "UNION", "ON", "LEFT", "CROSS", "JOIN", ";"), true)
	case s.is(i, "CHECK") && s.is(i+1, "("):
		s.conditions(i+2, s.close(i+1), true)
	case s.is(i, "WHEN") && !s.isSimpleCase(i):
		j := s.until(i, "THEN")
		s.part("condition", i+1, j, "(true OR "+s.between(i+1, j)+")")
		s.part("condition", i+1, j, "(false AND "+s.between(i+1, j)+")")
		s.conditions(i+1, j, false)
	case s.is(i, "SET") && !s.is(i+1, "(", "LOCAL"):
		s.assignments(i)
	case s.is(i, "AND") && !s.isBetween(i):
		s.word("operand", i, i+1, "OR")
	case s.is(i, "OR"):
		s.word("operand", i, i+1, "AND")
	case s.is(i, "=") && !s.isAssignment(i):
		if !s.inCondition(i) {
			s.word("boundary", i, i+1, "<>")
		}
	case s.is(i, "ALTER", "INSERT", "DELETE", "DROP") && (i == 0 || s.is(i-1, ";")):
		if end := s.until(i, ";"); strings.HasPrefix(s.name, "migrations/") {
			s.part("statement", i, end, "SELECT 1")
		}
	}
}

// conditions leaves out each part of a condition that AND and OR join. What is left out stays in the
// text, because a parameter must not disappear.
func (s *sqlText) conditions(from, to int, whole bool) {
	for _, word := range []string{"OR", "AND"} {
		parts := s.split(from, to, word)
		if len(parts) < 2 {
			continue
		}
		prefix := map[string]string{"OR": "(false AND ", "AND": "(true OR "}[word]
		for _, p := range parts {
			if text := s.between(p[0], p[1]); !strings.HasSuffix(text, "*/true") {
				s.part("condition", p[0], p[1], prefix+text+")")
				s.conditions(p[0], p[1], false)
			}
		}
		return
	}
	if whole && to > from {
		s.part("condition", from, to, "(true OR "+s.between(from, to)+")")
	}
	if s.is(from, "(") && s.close(from) == to-1 && !s.is(from+1, "SELECT") {
		s.conditions(from+1, to-1, false)
	}
}

// split divides the tokens from i to before j at a word.
func (s *sqlText) split(i, j int, word string) (parts [][2]int) {
	begin := i
	for k := i; k < j; k++ {
		if s.tokens[k].depth == s.tokens[i].depth && s.is(k, word) && !s.isBetween(k) {
			parts = append(parts, [2]int{begin, k})
			begin = k + 1
		}
	}
	return append(parts, [2]int{begin, j})
}

// assignments leaves out each assignment of a SET: the column keeps its value.
func (s *sqlText) assignments(i int) {
	table, ok := s.target(i)
	if !ok {
		return
	}
	for end := i; !s.is(end, "WHERE", "FROM", "RETURNING", ";") && end < len(s.tokens); {
		begin := end + 1
		end = s.until(begin, ",", "WHERE", "FROM", "RETURNING", ";")
		if !s.is(begin+1, "=") {
			continue
		}
		column := s.tokens[begin].text
		s.part("statement", begin, end, column+" = CASE WHEN 1 = 1 THEN "+table+column+" ELSE "+s.between(begin+2, end)+" END")
		if end < len(s.tokens) && s.tokens[end].depth < s.tokens[begin].depth {
			return
		}
	}
}

// target returns how the SET at i names the row that it updates, as in "b.".
func (s *sqlText) target(i int) (string, bool) {
	conflict := s.is(i-1, "UPDATE")
	for j := i - 1; j >= 0; j-- {
		if s.is(j, "INTO") || s.is(j, "UPDATE") && !s.is(j-1, "DO", "FOR") {
			for k := j; k < j+4; k++ {
				if s.is(k, "AS") {
					return s.tokens[k+1].text + ".", true
				}
			}
			return "", !conflict
		}
	}
	return "", false
}

// isBetween reports whether the AND at i belongs to a BETWEEN.
func (s *sqlText) isBetween(i int) bool {
	for j := i - 1; j >= 0 && s.tokens[j].depth >= s.tokens[i].depth; j-- {
		if s.tokens[j].depth == s.tokens[i].depth && s.is(j, "AND", "OR", "WHERE", "BETWEEN") {
			return s.is(j, "BETWEEN")
		}
	}
	return false
}

// isSimpleCase reports whether the WHEN at i has a value, not a condition.
func (s *sqlText) isSimpleCase(i int) bool {
	for j := i - 1; j >= 0; j-- {
		if s.tokens[j].depth == s.tokens[i].depth-1 && s.is(j, "CASE") {
			return !s.is(j+1, "WHEN")
		}
	}
	return false
}

// isAssignment reports whether the = at i belongs to a SET, a PRAGMA or a storage parameter.
func (s *sqlText) isAssignment(i int) bool {
	return s.is(i-2, "SET", "WITH", "PRAGMA", "(") && !s.is(i-3, "CHECK", "AND", "OR", "WHERE") ||
		s.is(i-2, ",") && s.is(s.nearest(i, "SET", "WITH", "SELECT", "WHERE", ";"), "SET", "WITH") || s.is(i-1, ")")
}

// inCondition reports whether the token i is in a WHERE or an ON, whose parts are left out.
func (s *sqlText) inCondition(i int) bool {
	return s.is(s.nearest(i, "WHERE", "ON", "WHEN", "CHECK", "SELECT", "SET", "THEN", "ELSE", ";"), "WHERE", "ON", "WHEN", "CHECK")
}

// nearest returns the last token up to i, outside of parentheses that end before i, that is one of these
// words; -1 if there is none.
func (s *sqlText) nearest(i int, words ...string) int {
	j := i
	for j >= 0 && (s.tokens[j].depth > s.tokens[i].depth || !s.is(j, words...)) {
		j--
	}
	return j
}
