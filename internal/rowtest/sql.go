package rowtest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
)

// SQL makes the statements with which tests write and read rows without a store.
type SQL struct {
	SQLite bool
	Schema string // of the tables, if it is not the default
}

// TableOf returns the table of a policy.
func TableOf(p limiter.Policy) *tables.Table { return tables.All[limiter.KindOf(p)-1] }

// Name returns the name of a table.
func (s SQL) Name(t *tables.Table) string {
	if s.Schema == "" {
		return t.Name
	}
	return s.Schema + "." + t.Name
}

// Names returns the names of all tables, separated by commas.
func (s SQL) Names() string {
	var names []string
	for _, t := range tables.All {
		names = append(names, s.Name(t))
	}
	return strings.Join(names, ", ")
}

// Insert returns the statement that adds a row, and its arguments.
func (s SQL) Insert(t *tables.Table, name, key string, row limiter.Row) (query string, args []any) {
	args = append(args, name, []byte(key))
	for _, field := range t.Fields(nil, &row) {
		switch field := field.(type) {
		case *int64:
			args = append(args, *field)
		case rowlist.Part:
			args = append(args, s.list(field.Get()))
		}
	}
	values := make([]string, len(args))
	for i := range values {
		values[i] = fmt.Sprint(map[bool]string{false: "$", true: "?"}[s.SQLite], i+1)
		if i > 1 && slices.Contains(t.Lists, t.Columns[i-2]) && !s.SQLite {
			values[i] += "::text::bigint[]"
		}
	}
	return fmt.Sprintf("INSERT INTO %s (limiter, key, %s, granted) VALUES (%s, 1)",
		s.Name(t), strings.Join(t.Columns, ", "), strings.Join(values, ", ")), args
}

// Replace is [SQL.Insert] that changes the row if there is one.
func (s SQL) Replace(t *tables.Table, name, key string, row limiter.Row) (query string, args []any) {
	query, args = s.Insert(t, name, key, row)
	var set []string
	for _, column := range t.Columns {
		set = append(set, column+" = excluded."+column)
	}
	return query + " ON CONFLICT (limiter, key) DO UPDATE SET " + strings.Join(set, ", "), args
}

// list returns a list as an argument.
func (s SQL) list(list string) any {
	if s.SQLite {
		return []byte(list)
	}
	text, _ := json.Marshal(rowlist.Numbers(list)) // of numbers
	return "{" + strings.Trim(string(text), "[]") + "}"
}

// Select returns the statement that reads a table's rows: see [Read].
func (s SQL) Select(t *tables.Table) string {
	columns := slices.Clone(t.Columns)
	for i, column := range columns {
		if slices.Contains(t.Lists, column) && !s.SQLite {
			columns[i] = "array_to_json(" + column + ")::text"
		}
	}
	return fmt.Sprintf("SELECT limiter, key, %s FROM %s", strings.Join(columns, ", "), s.Name(t))
}

// Records are the rows that database/sql or pgx returns for a statement.
type Records interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

// Read reads what [SQL.Select] returns.
func Read(t *tables.Table, records Records, each func(name, key string, row limiter.Row)) error {
	for records.Next() {
		var name string
		var key []byte
		var row limiter.Row
		if err := records.Scan(Into(t, &row, &name, &key)...); err != nil {
			return err
		}
		each(name, string(key), row)
	}
	return records.Err()
}

// Into appends the fields of a row to the targets of Scan.
func Into(t *tables.Table, row *limiter.Row, to ...any) []any {
	fields := t.Fields(nil, row)
	for i := range fields {
		if list, ok := fields[i].(rowlist.Part); ok {
			fields[i] = &List{list}
		}
	}
	return append(to, fields...)
}

// List is a list that is read from a BLOB or from JSON: an array of numbers, or the BLOB in hexadecimal
// digits.
type List struct{ rowlist.Part }

// Scan implements [database/sql.Scanner].
func (l List) Scan(from any) error {
	switch from := from.(type) {
	case []byte:
		l.Set(string(from))
	case string:
		return l.UnmarshalJSON([]byte(from))
	default:
		return fmt.Errorf("a list is a %T", from)
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l List) UnmarshalJSON(text []byte) error {
	var digits string
	if json.Unmarshal(text, &digits) == nil {
		blob, err := hex.DecodeString(digits)
		l.Set(string(blob))
		return err
	}
	var values []int64
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	l.Set(rowlist.Of(values...))
	return nil
}
