package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"strings"
)

// files are statements. Those that contain "/* table */" are templates for all tables.
//
//go:embed sql/*.sql
var files embed.FS

// statement is the name of a statement: that of its file without the suffix. The name of one that
// was made from a template begins with the kind of its table, as in bucket_row.
type statement string

// silent returns the statement without its RETURNING clause, for which SQLite opens a temporary
// table. That takes a fourth of the time of a lone take.
func (st statement) silent() statement { return st + "_silent" }

// texts are the texts of all statements.
var texts = render(allTables)

func render(tables []*table) map[statement]string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // the directory is part of the program
	}
	texts := map[statement]string{}
	for _, e := range entries {
		b, err := files.ReadFile("sql/" + e.Name())
		if err != nil {
			panic(err)
		}
		// Without white space at the end: the driver prepares whatever follows a statement each time.
		name, text := strings.TrimSuffix(e.Name(), ".sql"), strings.TrimSpace(string(b))
		if !strings.Contains(text, "/* table */") {
			texts[statement(name)] = text
			if silent, _, returns := strings.Cut(text, "\nRETURNING "); returns {
				texts[statement(name).silent()] = silent + ";"
			}
			continue
		}
		for _, t := range tables {
			texts[statement(t.Prefix+"_"+name)] = t.render(text)
		}
	}
	return texts
}

// render fills in a template.
func (t *table) render(text string) string {
	set := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		set[i] = c + " = excluded." + c
	}
	return strings.NewReplacer(
		"/* table */", t.Name,
		"/* columns */", strings.Join(t.Columns, ", "),
		"/* parameters */", strings.Repeat("?, ", len(t.Columns)),
		"/* set */", strings.Join(set, ", "),
		"/* end */", t.Render(t.End, true),
	).Replace(text)
}

// session runs statements.
type session interface {
	// query runs a statement and calls row with the columns of each row, which row must not keep. It
	// may be nil. The statement is stepped to its end, which is when a write is committed.
	query(ctx context.Context, st statement, row func(columns []driver.Value) error, args ...any) error
	// exec runs a statement that returns no rows and tells how many it changed.
	exec(ctx context.Context, st statement, args ...any) (changed int64, err error)
}

// transaction is a session whose statements take effect together at the commit. If another
// connection wrote after the first read, it cannot write any more and fails with SQLITE_BUSY.
type transaction interface {
	session
	commit(ctx context.Context) error
	rollback() // undoes all; after commit it does nothing
}

// pool is a set of connections to one database. As a session it runs each statement alone.
type pool interface {
	session
	// begin begins a transaction. If locked is true, the transaction holds the write lock.
	// Otherwise it may hold it, unless reads returns true.
	begin(ctx context.Context, locked bool) (transaction, error)
	// snapshot begins a transaction that only reads, without the write lock. It ends by rollback.
	snapshot(ctx context.Context) (transaction, error)
	// reads reports whether an unlocked transaction takes the write lock only when it writes.
	reads() bool
	// restart makes the log start from its beginning, if that is possible.
	restart(ctx context.Context)
	// grow makes room for new rows, or fails.
	grow(ctx context.Context) error
	close() error
}
