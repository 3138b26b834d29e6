package migrations_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/migrations"
)

// row returns the columns of a row that is in order, without its key. Values are SQL.
func (d database) row(table *tables.Table) map[string]string {
	row := map[string]string{"limiter": "'l'", "granted": "1"}
	for _, column := range table.Columns {
		row[column] = "5"
	}
	for _, list := range table.Lists {
		row[list] = d.list()
	}
	return row
}

func (d database) list(numbers ...int64) string {
	if d.dialect == migrations.SQLite {
		return d.bytes(rowlist.Of(numbers...))
	}
	return "'{" + strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",") + "}'::bigint[]"
}

func (d database) bytes(text string) string {
	if d.dialect == migrations.SQLite {
		return fmt.Sprintf("X'%x'", text)
	}
	return fmt.Sprintf(`'\x%x'`, text)
}

func (d database) key(number int) string { return d.bytes(fmt.Sprint(number)) }

// insert returns the INSERT of a valid row, with one column replaced.
func (d database) insert(table, column, value string, key int) string {
	return d.insertRow(table, map[string]string{"key": d.key(key), column: value})
}

// insertRow returns the INSERT of a valid row, with these columns replaced. One of them must be the key.
func (d database) insertRow(table string, columns map[string]string) string {
	row := d.row(tables.All[slices.IndexFunc(tables.All, func(t *tables.Table) bool { return t.Name == table })])
	maps.Copy(row, columns)
	names := slices.Sorted(maps.Keys(row))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = row[name]
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(values, ", "))
}

func (d database) rejects(t *testing.T, table, column, value string) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), d.insert(table, column, value, 0)); err == nil {
		t.Errorf("%s.%s takes %s", table, column, value)
	}
}

func TestTablesRejectValuesOutOfRange(t *testing.T) {
	t.Parallel()
	const (
		beyond  = "4611686018427387905" // 2^62 + 1
		above   = "4611686018427387904" // 2^62
		highest = "4611686018427387903"
		most    = "9223372036854775807"
	)
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		key := 0
		for _, table := range tables.All {
			d.rejects(t, table.Name, "key", "NULL")
			for column, value := range d.row(table) {
				var good, bad []string
				switch policy := table.Columns[len(table.Columns)-table.PolicyColumns:]; {
				case column == "limiter":
					good = []string{"''", "'a:b/c'"}
				case slices.Contains(policy, column):
					good, bad = []string{"1", highest}, []string{"0", "-1"}
				case column == "granted":
					good, bad = []string{"0", highest}, []string{"-1"}
				case column == "cum":
					good, bad = []string{value, d.list(make([]int64, 18)...)}, []string{d.list(5), d.list(make([]int64, 19)...)}
				case column == "ends": // as long as ids
					good, bad = []string{value}, []string{d.list(5)}
				case column == "ids":
					good = []string{value}
				case column == "used":
					good, bad = []string{"0", above}, []string{"-1", beyond, most}
				default: // instants
					good, bad = []string{"0", highest}, []string{"-1", beyond, most}
				}
				for _, value := range good {
					key++
					run(t, d.DB, d.insert(table.Name, column, value, key))
				}
				for _, value := range bad {
					key++
					statement, constraint := d.insert(table.Name, column, value, key), table.Name+"_check"
					if d.dialect == migrations.SQLite {
						constraint = table.Name + "_" + column + "_check"
					}
					if _, err := d.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), constraint) {
						t.Errorf("%s: error %v, want one that names %s", statement, err, constraint)
					}
				}
				d.rejects(t, table.Name, column, "NULL")
			}
		}
	})
}

func TestSQLiteColumnsRejectOtherTypes(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	d.up(t)
	for _, table := range tables.All {
		for column := range d.row(table) {
			values := []string{"1.5", "'x'", "X'00'", "9223372036854775807 + 1"} // the last is a REAL
			switch {
			case column == "limiter":
				values = []string{"X'00'"}
			case slices.Contains(table.Lists, column):
				values[2] = "1"
			}
			for _, value := range values {
				d.rejects(t, table.Name, column, value)
			}
		}
		for _, value := range []string{"'text'", "1", "1.5"} {
			d.rejects(t, table.Name, "key", value)
		}
	}
}
