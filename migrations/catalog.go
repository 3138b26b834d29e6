package migrations

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3/database"
)

// scratchSchema is where PostgreSQL keeps the temporary tables of a session.
const scratchSchema = "pg_temp"

// listPostgres lists root, kind, name and definition of all objects of a schema
// whose names begin with limiter_. search_path must be that of pinSearchPath, by
// which PostgreSQL writes names in definitions.
//
// It leaves out what does not change how a table works, or is an operator's to
// choose: comments, the order of columns, privileges, triggers and policies.
const listPostgres = `
WITH place AS (
	SELECT oid, nspname FROM pg_namespace
	WHERE oid = CASE $1::text WHEN 'pg_temp' THEN pg_my_temp_schema() ELSE to_regnamespace(quote_ident($1::text)) END
), rel AS (
	SELECT c.*, coalesce(t.relname, c.relname) AS root, place.nspname
	FROM pg_class c JOIN place ON place.oid = c.relnamespace
	LEFT JOIN pg_index i ON i.indexrelid = c.oid
	LEFT JOIN pg_class t ON t.oid = i.indrelid AND t.relname LIKE 'limiter\_%'
	WHERE coalesce(t.relname, c.relname) LIKE 'limiter\_%' AND c.relkind <> 't'
)
SELECT relname::text, CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence'
		WHEN 'f' THEN 'foreign table' WHEN 'c' THEN 'type' ELSE 'table' END, relname::text,
	CASE WHEN relkind IN ('v', 'm') THEN replace(pg_get_viewdef(oid), quote_ident(nspname) || '.limiter_', 'limiter_')
		WHEN relkind = 'p' THEN 'PARTITIONED' WHEN relpersistence = 'u' THEN 'UNLOGGED' WHEN relkind = 'r' THEN 'LOGGED' ELSE '' END
FROM rel WHERE relkind NOT IN ('i', 'I')
UNION ALL
SELECT root::text, 'index', relname::text, substring(pg_get_indexdef(oid) FROM 'USING .*')
FROM rel WHERE relkind IN ('i', 'I') AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = rel.oid)
UNION ALL
SELECT relname::text, 'storage parameter', option_name, option_value
FROM rel, pg_options_to_table(reloptions) WHERE relkind IN ('r', 'p')
UNION ALL
SELECT relname::text, 'column', attname::text, format_type(atttypid, atttypmod)
	|| coalesce((SELECT ' COLLATE ' || quote_ident(collname) FROM pg_collation l JOIN pg_type t ON t.oid = atttypid
		WHERE l.oid = attcollation AND attcollation <> typcollation), '')
	|| CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
	|| CASE WHEN attidentity <> '' THEN ' GENERATED AS IDENTITY' ELSE '' END
	|| coalesce((SELECT CASE WHEN attgenerated = '' THEN ' DEFAULT ' ELSE ' GENERATED ALWAYS AS ' END || pg_get_expr(adbin, adrelid)
		FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum), '')
FROM rel JOIN pg_attribute ON attrelid = rel.oid AND attnum > 0 AND NOT attisdropped WHERE relkind IN ('r', 'p')
UNION ALL
SELECT relname::text, 'constraint', conname::text, pg_get_constraintdef(k.oid)
FROM rel JOIN pg_constraint k ON conrelid = rel.oid WHERE contype NOT IN ('n', 't')`

// listSQLite is listPostgres for SQLite, which keeps the text of each definition.
const listSQLite = `
SELECT CASE WHEN tbl_name LIKE 'limiter\_%' ESCAPE '\' THEN tbl_name ELSE name END, type, name, sql FROM sqlite_master
WHERE (tbl_name LIKE 'limiter\_%' ESCAPE '\' OR name LIKE 'limiter\_%' ESCAPE '\') AND type <> 'trigger' AND sql IS NOT NULL`

// describe returns the layout of all objects whose names begin with limiter_,
// except the version table.
func (c config) describe(ctx context.Context, db database.DBTxConn) (layout, error) {
	query, args := listSQLite, []any(nil)
	if c.dialect == Postgres {
		query, args = listPostgres, []any{c.schema}
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("migrations: look for tables: %w", err)
	}
	defer rows.Close()
	l := layout{}
	for rows.Next() {
		var o object
		var definition string
		if err := rows.Scan(&o.root, &o.kind, &o.name, &definition); err != nil {
			return nil, fmt.Errorf("migrations: look for tables: %w", err)
		}
		if c.dialect == SQLite {
			o.root, o.name = strings.ToLower(o.root), strings.ToLower(o.name)
			definition = canonical(definition)
			if o.kind == kindTable {
				definition = l.addParts(o.root, definition)
			}
		}
		l[o] = definition
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("migrations: look for tables: %w", err)
	}
	return l, nil
}

// unnamed matches a constraint of a table that has no name.
var unnamed = regexp.MustCompile(`^(primary key|unique|check|foreign key)\(`)

// addParts adds the columns and constraints of a canonical CREATE TABLE of SQLite,
// and returns what remains: the options of the table.
func (l layout) addParts(table, create string) string {
	head, rest, _ := strings.Cut(create, "(")
	head = strings.TrimPrefix(head, "create table "+table)
	end := strings.LastIndex(rest, ")")
	if end < 0 {
		return head + rest
	}
	for _, part := range splitList(rest[:end]) {
		o := object{root: table, kind: kindColumn}
		name, definition, _ := strings.Cut(part, " ")
		if name == "constraint" {
			o.kind = kindConstraint
			name, definition, _ = strings.Cut(definition, " ")
		} else if unnamed.MatchString(part) {
			o.kind, name, definition = kindConstraint, part, part
		}
		o.name = name
		l[o] = definition
	}
	return cmp.Or(head+rest[end+1:], "with rowid")
}

// splitList splits at the commas that stand in no parentheses and in no string.
func splitList(text string) []string {
	var parts []string
	depth, from, quoted := 0, 0, false
	for i, r := range text {
		switch {
		case r == '\'':
			quoted = !quoted // twice for a quote in a string
		case quoted:
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}

// canonical returns SQL of SQLite without what has no meaning: comments, white
// space, capitals, and the quotation marks of names.
func canonical(sql string) string {
	var b strings.Builder
	apart := false // a word has ended, and another would run into it
	word := func(text string) {
		if apart {
			b.WriteByte(' ')
		}
		b.WriteString(text)
		apart = true
	}
	for sql != "" {
		n := 1
		switch c := sql[0]; {
		case strings.ContainsRune(" \t\r\n\f", rune(c)):
		case strings.HasPrefix(sql, "--"):
			n = until(sql, 2, "\n")
		case strings.HasPrefix(sql, "/*"):
			n = until(sql, 2, "*/")
		case c == '\'':
			for n = until(sql, 1, "'"); strings.HasPrefix(sql[n:], "'"); {
				n = until(sql, n+1, "'")
			}
			word(sql[:n])
		case c == '"' || c == '`' || c == '[':
			closing := map[byte]string{'"': `"`, '`': "`", '[': "]"}[c]
			n = until(sql, 1, closing)
			word(strings.ToLower(strings.TrimSuffix(sql[1:n], closing)))
		case isWord(c):
			for n < len(sql) && isWord(sql[n]) {
				n++
			}
			word(strings.ToLower(sql[:n]))
		default:
			b.WriteByte(c)
			apart = false
		}
		sql = sql[n:]
	}
	return b.String()
}

// until returns the index behind the first mark in text at or after from, or the
// end of text.
func until(text string, from int, mark string) int {
	if i := strings.Index(text[from:], mark); i >= 0 {
		return from + i + len(mark)
	}
	return len(text)
}

// isWord reports whether a character belongs to a name, a keyword or a number.
func isWord(c byte) bool {
	return c == '_' || c == '.' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
