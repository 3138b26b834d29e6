package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pressly/goose/v3/database"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/tables"
)

// overrideColumns are the columns of the table limiter_overrides, with their types in PostgreSQL.
var overrideColumns = map[string]string{
	"capacity": "bigint", "refill": "bigint", "period": "bigint", "expires_at": "bigint",
	"limiter": "text", "key": "bytea", "kind": "text", "note": "text",
}

// sqliteTypes are the types of columns in SQLite, by those in PostgreSQL.
var sqliteTypes = map[string]string{"bigint": "INTEGER", "text": "TEXT", "bytea": "BLOB", "bigint[]": "BLOB"}

// wanted returns the names of all objects that the newest version consists of. A table has the types
// of its columns. The view has none, because no store needs it.
func (c config) wanted() map[string]map[string]string {
	all := map[string]map[string]string{
		"limiter_overrides": maps.Clone(overrideColumns),
		"limiter_remaining": nil,
	}
	for _, t := range tables.All {
		columns := map[string]string{"limiter": "text", "key": "bytea", "granted": "bigint"}
		for _, column := range t.Columns {
			columns[column] = "bigint"
			if slices.Contains(t.Lists, column) {
				columns[column] = "bigint[]"
			}
		}
		all[t.Name] = columns
	}
	if c.dialect == SQLite {
		for _, columns := range all {
			for name, of := range columns {
				columns[name] = sqliteTypes[of]
			}
		}
	}
	return all
}

// listPostgres lists the kind and the name of each object in a schema whose name begins with limiter_,
// with the name and the type of each column. A column is required if each INSERT must give its value. The
// last number is the column's place in the primary key, or 0.
// search_path must be that of pinSearchPath.
const listPostgres = `
SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'i' THEN 'index' WHEN 'I' THEN 'index'
		WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'foreign table' WHEN 'c' THEN 'type' ELSE 'table' END,
	relname::text, coalesce(attname::text, ''), coalesce(format_type(atttypid, atttypmod), ''),
	coalesce(attnotnull AND NOT atthasdef AND attidentity = '', false),
	coalesce(array_position(indkey::int2[], attnum) + 1, 0)
FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
LEFT JOIN pg_index ON indrelid = pg_class.oid AND indisprimary
LEFT JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
WHERE nspname = $1 AND relname LIKE 'limiter\_%'`

// listSQLite is listPostgres for SQLite.
const listSQLite = `
SELECT m.type, lower(m.name), coalesce(lower(c.name), ''), coalesce(c.type, ''),
	coalesce(c."notnull" AND c.dflt_value IS NULL, 0), coalesce(c.pk, 0)
FROM sqlite_master AS m LEFT JOIN pragma_table_info(m.name) AS c ON m.type = 'table'
WHERE m.name LIKE 'limiter\_%' ESCAPE '\' AND m.type <> 'trigger'`

// object is something in the database that has the name of one of limiter's objects.
type object struct {
	kind    string // as DROP calls it
	columns map[string]column
}

type column struct {
	of       string // its type
	required bool
	place    int // in the primary key, from 1 upwards
}

// inspect compares the database with the version that it records, and returns that version. It fails
// if no migration is recorded, but there is an object with a name of limiter's. It also fails if the
// newest version or a later one is recorded, but the stores' statements do not work.
func (m *migrator) inspect(ctx context.Context, newest int64) (version int64, err error) {
	var rows []*database.ListMigrationsResult
	var found map[string]object
	read := func(db database.DBTxConn) (err error) {
		if rows, _, err = m.versions.rows(ctx, db); err == nil {
			found, err = m.list(ctx, db)
		}
		return err
	}
	if m.dialect == Postgres {
		var tx *sql.Tx
		if tx, err = m.db.BeginTx(ctx, nil); err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback() }() // it has only read
		if _, err = tx.ExecContext(ctx, pinSearchPath); err == nil {
			err = read(tx)
		}
	} else { // a transaction may be one that writes, if the DSN says so
		err = read(m.db)
	}
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if !row.IsApplied { // goose would not apply it, nor revert it
			return 0, fmt.Errorf("%w: migrations: table %s has a row of version %d that is not applied: delete that row",
				limiter.ErrMisconfigured, m.versions.Tablename(), row.Version)
		}
		version = max(version, row.Version)
	}
	m.drops = m.dropAll(found)
	return version, m.compare(version, newest, found)
}

// list returns the objects with a name of limiter's, and the version table.
func (m *migrator) list(ctx context.Context, db database.DBTxConn) (map[string]object, error) {
	query, args := listSQLite, []any(nil)
	if m.dialect == Postgres {
		query, args = listPostgres, []any{m.schema}
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("migrations: look for tables: %w", err)
	}
	defer rows.Close()
	found, wanted := map[string]object{}, m.wanted()
	for rows.Next() {
		var kind, name, columnName string
		var c column
		if err := rows.Scan(&kind, &name, &columnName, &c.of, &c.required, &c.place); err != nil {
			return nil, fmt.Errorf("migrations: look for tables: %w", err)
		}
		if _, ours := wanted[name]; !ours && name != versionTable {
			continue
		}
		if _, seen := found[name]; !seen {
			found[name] = object{kind, map[string]column{}}
		}
		if columnName != "" {
			found[name].columns[columnName] = c
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("migrations: look for tables: %w", err)
	}
	return found, nil
}

// compare returns an error if the objects do not fit the recorded version.
func (m *migrator) compare(version, newest int64, found map[string]object) error {
	var unrecorded, differences []string
	wanted := m.wanted()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		o, exists := found[name]
		if version == 0 && exists {
			unrecorded = append(unrecorded, o.kind+" "+name)
		}
		if version == 0 && exists || version >= newest {
			differences = append(differences, o.differ(name, wanted[name], version > newest)...)
		}
	}
	if unrecorded == nil && differences == nil {
		return nil
	}
	place, instead, record := "the database", "use another file", "version "+fmt.Sprint(version)
	if m.dialect == Postgres {
		place, instead = "schema "+pgschema.Quote(m.schema), "use another schema"
	}
	if version == 0 {
		record, instead = "no migration", "restore the rows of "+versionTable+" if they were lost, "+instead
		differences = append([]string{"it has " + strings.Join(unrecorded, ", ")}, differences...)
	}
	return fmt.Errorf("%w: migrations: %s does not fit table %s, which records %s: %s; "+
		"%s, or, if only limiter uses these, drop them with the state of every key and all overrides (%s), and try again",
		limiter.ErrMisconfigured, place, versionTable, record, strings.Join(differences, "; "), instead, m.drops)
}

// differ lists what keeps the stores' statements from working on a table. A newer release may have
// added columns.
func (o object) differ(name string, want map[string]string, newer bool) (list []string) {
	if want == nil {
		return nil
	}
	if o.kind != "table" {
		return []string{"table " + name + " is missing"}
	}
	for _, c := range slices.Sorted(maps.Keys(want)) {
		got, exists := o.columns[c]
		if !exists {
			list = append(list, fmt.Sprintf("column %s.%s is missing", name, c))
		} else if !strings.EqualFold(got.of, want[c]) && !newer {
			list = append(list, fmt.Sprintf("column %s.%s is %s, not %s", name, c, got.of, want[c]))
		}
	}
	for _, c := range slices.Sorted(maps.Keys(o.columns)) {
		if want[c] == "" && o.columns[c].required && !newer {
			list = append(list, fmt.Sprintf("column %s.%s is not limiter's, and must have a value", name, c))
		}
	}
	if (o.columns["limiter"].place != 1 || o.columns["key"].place != 2) && !newer {
		list = append(list, fmt.Sprintf("the primary key of table %s is not (limiter, key)", name))
	}
	return list
}

// dropAll returns the statements that remove the objects. Views come first, because they need tables.
func (m *migrator) dropAll(found map[string]object) string {
	var views, others []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		kind, qualified := found[name].kind, name
		if m.dialect == Postgres {
			qualified = pgschema.Quote(m.schema) + "." + name
		}
		statement := "DROP " + strings.ToUpper(kind) + " " + qualified
		if strings.HasSuffix(kind, "view") {
			views = append(views, statement)
		} else {
			others = append(others, statement)
		}
	}
	return strings.Join(append(views, others...), "; ")
}
