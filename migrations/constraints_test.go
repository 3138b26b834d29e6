package migrations_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/migrations"
)

// columns of each table, with a row that is in order. Values are SQL.
var tables = map[string]map[string]string{
	"limiter_token_buckets": {"limiter": "'l'", "full_at": "5", "at": "5", "step": "5", "capacity": "5", "granted": "1"},
	"limiter_fixed_windows": {"limiter": "'l'", "window_start": "5", "win": "5", "lim": "5", "used": "5", "at": "5", "granted": "1"},
}

// insert returns a statement for a row in order, but for the given column. keys are given as hex.
func (d database) insert(table, column, value string, key int) string {
	row := maps.Clone(tables[table])
	row["key"] = fmt.Sprintf(`'\x%04x'`, key)
	if d.dialect == migrations.SQLite {
		row["key"] = fmt.Sprintf("X'%04x'", key)
	}
	row[column] = value
	names := slices.Sorted(maps.Keys(row))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = row[name]
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(values, ", "))
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
		for table, row := range tables {
			if _, err := d.ExecContext(t.Context(), d.insert(table, "key", "NULL", 0)); err == nil {
				t.Errorf("%s.key takes NULL", table)
			}
			for column := range row {
				var good, bad []string
				switch column {
				case "limiter":
					good = []string{"''", "'a:b/c'"}
				case "step", "capacity", "win", "lim":
					good, bad = []string{"1", highest}, []string{"0", "-1"}
				case "granted":
					good, bad = []string{"0", highest}, []string{"-1"}
				case "used":
					good, bad = []string{"0", above}, []string{"-1", beyond, most}
				default: // instants
					good, bad = []string{"0", highest}, []string{"-1", beyond, most}
				}
				for _, value := range good {
					key++
					run(t, d.DB, d.insert(table, column, value, key))
				}
				for _, value := range bad {
					key++
					statement, constraint := d.insert(table, column, value, key), table+"_check"
					if d.dialect == migrations.SQLite {
						constraint = table + "_" + column + "_check"
					}
					if _, err := d.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), constraint) {
						t.Errorf("%s: error %v, want one that names %s", statement, err, constraint)
					}
				}
				key++
				if _, err := d.ExecContext(t.Context(), d.insert(table, column, "NULL", key)); err == nil {
					t.Errorf("%s.%s takes NULL", table, column)
				}
			}
		}
	})
}

func TestOneRowPerLimiterAndKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		for table := range tables {
			// Names and keys are told apart by their bytes.
			run(t, d.DB, d.insert(table, "limiter", "'a'", 1), d.insert(table, "limiter", "'A'", 1), d.insert(table, "limiter", "'a'", 2))
			if _, err := d.ExecContext(t.Context(), d.insert(table, "limiter", "'a'", 1)); err == nil {
				t.Errorf("%s takes a second row for one limiter and key", table)
			}
		}
	})
}

func TestSQLiteColumnsRejectOtherTypes(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	d.up(t)
	for table, row := range tables {
		for column := range row {
			values := []string{"1.5", "'x'", "X'00'", "9223372036854775807 + 1"} // the last is a REAL
			if column == "limiter" {
				values = []string{"X'00'"}
			}
			for i, value := range values {
				if _, err := d.ExecContext(t.Context(), d.insert(table, column, value, i)); err == nil {
					t.Errorf("%s.%s takes %s", table, column, value)
				}
			}
		}
		for _, value := range []string{"'text'", "1", "1.5"} {
			if _, err := d.ExecContext(t.Context(), d.insert(table, "key", value, 0)); err == nil {
				t.Errorf("%s.key takes %s", table, value)
			}
		}
	}
}
