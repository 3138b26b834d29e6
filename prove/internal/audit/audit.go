// Package audit writes down every change of the limiter's tables, by triggers that a test
// adds to them. A row is locked while its trigger runs, so the order in which the changes
// of a key are written down is the one in which they were committed.
package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/prove/internal/history"
)

// Log is the audit of a database.
type Log interface {
	// Read returns what was written down since the log was made or cleared, and the rows
	// that the tables have now. Nobody may write meanwhile.
	Read(ctx context.Context) ([]history.Transition, map[history.Key]limiter.Row, error)
	// Clear empties the tables and the log.
	Clear(ctx context.Context) error
	// Seed adds rows to the tables as if they had been there from the beginning: the log
	// does not tell of them.
	Seed(ctx context.Context, rows map[history.Key]limiter.Row) error
	// Close gives back what the log needs. The triggers stay.
	Close() error
}

// readLog reads a log of table names, units, old and new rows.
func readLog(records rowtest.Records) (log []history.Transition, err error) {
	for records.Next() {
		var name string
		var t history.Transition
		var from, to []byte
		if err := records.Scan(&name, &t.Units, &from, &to); err != nil {
			return nil, err
		}
		for _, table := range tables.All {
			if table.Name == name {
				if err := read(table, from, &t.Key, &t.Old); err != nil {
					return nil, err
				}
				if err := read(table, to, &t.Key, &t.New); err != nil {
					return nil, err
				}
			}
		}
		log = append(log, t)
	}
	return log, records.Err()
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

func insert(sql rowtest.SQL, k history.Key, row limiter.Row) (query string, args []any) {
	return sql.Insert(tables.All[k.Kind-1], k.Name, k.Key, row)
}
