// Package audit writes down every change of the limiter's tables, by triggers that a test
// adds to them. A row is locked while its trigger runs, so the order in which the changes
// of a key are written down is the one in which they were committed.
package audit

import (
	"context"
	"database/sql"
	_ "embed" // for the triggers
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/prove/internal/history"
)

//go:embed postgres.sql
var postgresTriggers string

//go:embed sqlite.sql
var sqliteTriggers string

// Log is the audit of a database. It connects anew for each call: the server may have been killed.
type Log struct {
	db  *sql.DB
	sql rowtest.SQL
}

// Postgres adds the triggers to the migrated tables in the schema public, and returns their log.
func Postgres(ctx context.Context, dsn string) (*Log, error) {
	triggers := []string{postgresTriggers}
	for _, t := range tables.All {
		triggers = append(triggers, "CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON "+t.Name+" FOR EACH ROW EXECUTE FUNCTION audit()")
	}
	return open(ctx, "pgx", dsn, rowtest.SQL{}, triggers)
}

// SQLite adds the triggers to the migrated tables in the file at path, and returns their log.
func SQLite(ctx context.Context, path string) (*Log, error) {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "_pragma=busy_timeout(10000)&_txlock=immediate"}
	var triggers []string
	for _, t := range tables.All {
		of := strings.NewReplacer("TABLE_NAME", t.Name, "OLD_ROW", jsonRow(t, "OLD"), "NEW_ROW", jsonRow(t, "NEW"))
		triggers = append(triggers, of.Replace(sqliteTriggers))
	}
	return open(ctx, "sqlite", dsn.String(), rowtest.SQL{SQLite: true}, triggers)
}

func open(ctx context.Context, driver, dsn string, dialect rowtest.SQL, triggers []string) (*Log, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	db.SetMaxIdleConns(-1)
	l := &Log{db, dialect}
	err = l.change(ctx, triggers...)
	return l, err
}

// jsonRow is SQL for the JSON of a row of a trigger, which is OLD or NEW.
func jsonRow(t *tables.Table, row string) string {
	pairs := "'limiter', " + row + ".limiter, 'key', hex(" + row + ".key)"
	for _, column := range t.Columns {
		value := row + "." + column
		if slices.Contains(t.Lists, column) {
			value = "hex(" + value + ")"
		}
		pairs += ", '" + column + "', " + value
	}
	return "json_object(" + pairs + ")"
}

// change runs statements, one after another.
func (l *Log) change(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := l.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// Clear empties the tables and the log.
func (l *Log) Clear(ctx context.Context) error {
	if !l.sql.SQLite {
		return l.change(ctx, "TRUNCATE audit, "+l.sql.Names())
	}
	var statements []string
	for _, t := range tables.All {
		statements = append(statements, "DELETE FROM "+t.Name)
	}
	return l.change(ctx, append(statements, "DELETE FROM audit")...) // also what the triggers wrote now
}

// Seed adds rows to the tables that [Log.Clear] has emptied. The log does not tell of them.
func (l *Log) Seed(ctx context.Context, rows map[history.Key]limiter.Row) error {
	for k, r := range rows {
		query, args := l.sql.Insert(tables.All[k.Kind-1], k.Name, k.Key, r)
		if _, err := l.db.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return l.change(ctx, "DELETE FROM audit")
}

// Read returns the log since it was cleared, and the rows of the tables. Nobody may write meanwhile.
func (l *Log) Read(ctx context.Context) (log []history.Transition, left map[history.Key]limiter.Row, err error) {
	left = map[history.Key]limiter.Row{}
	err = l.query(ctx, "SELECT name, units, old, new FROM audit ORDER BY seq", func(rows *sql.Rows) (err error) {
		for rows.Next() && err == nil {
			var name string
			var t history.Transition
			var from, to []byte
			err = rows.Scan(&name, &t.Units, &from, &to)
			for _, table := range tables.All {
				if table.Name == name {
					err = errors.Join(err, read(table, from, &t.Key, &t.Old), read(table, to, &t.Key, &t.New))
				}
			}
			log = append(log, t)
		}
		return err
	})
	for _, t := range tables.All {
		err = errors.Join(err, l.query(ctx, l.sql.Select(t), func(rows *sql.Rows) error {
			return rowtest.Read(t, rows, func(name, key string, row limiter.Row) {
				left[history.Key{Kind: t.Kind, Name: name, Key: key}] = row
			})
		}))
	}
	return log, left, err
}

// query calls read with the rows.
func (l *Log) query(ctx context.Context, query string, read func(*sql.Rows) error) error {
	rows, err := l.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	if err := errors.Join(read(rows), rows.Err()); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// read reads a row from the JSON that the triggers wrote, which is empty if there was none.
func read(t *tables.Table, text []byte, key *history.Key, row *limiter.Row) error {
	if text == nil {
		return nil
	}
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(text, &columns); err != nil {
		return err
	}
	var inHex string
	fields := rowtest.Into(t, row, &key.Name, &inHex)
	for i, column := range append([]string{"limiter", "key"}, t.Columns...) {
		if err := json.Unmarshal(columns[column], fields[i]); err != nil {
			return fmt.Errorf("%s of %s: %w", column, text, err)
		}
	}
	bytes, err := hex.DecodeString(strings.TrimPrefix(inHex, `\x`))
	key.Kind, key.Key = t.Kind, string(bytes)
	return err
}

// Close closes the database. The triggers stay.
func (l *Log) Close() error { return l.db.Close() }
