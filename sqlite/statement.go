package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"strings"
)

//go:embed sql/*.sql
var files embed.FS

// statement is the name of a file in sql, without its suffix.
type statement string

// text returns the statement without the end of its last line: the driver prepares what follows a
// statement anew each time, even if it is white space.
func (st statement) text() (string, error) {
	b, err := files.ReadFile("sql/" + string(st) + ".sql")
	return strings.TrimSpace(string(b)), err
}

// session carries out statements.
type session interface {
	// query runs a statement and calls row with the columns of each row, which row must not keep. It
	// may be nil. The statement is stepped to its end, which is when a write is committed.
	query(ctx context.Context, st statement, row func(columns []driver.Value) error, args ...any) error
	// exec runs a statement that returns no rows and tells how many it changed.
	exec(ctx context.Context, st statement, args ...any) (changed int64, err error)
}

// transaction is a session whose statements take effect together, when it is committed. If somebody
// else wrote after it first read, it cannot write any more: that is SQLITE_BUSY, as a lock is.
type transaction interface {
	session
	commit(ctx context.Context) error
	rollback() // undoes all; after commit it does nothing
}

// pool is connections to one database. As a session it carries out each statement by itself.
type pool interface {
	session
	// begin begins a transaction. If locked is true it has the write lock. It may have it in any case,
	// unless reads reports that it has not.
	begin(ctx context.Context, locked bool) (transaction, error)
	// reads reports whether a transaction that was begun without the write lock does not take it
	// before it writes.
	reads() bool
	// restart lets the log begin anew.
	restart(ctx context.Context) error
	// grow makes room for new rows, or fails.
	grow(ctx context.Context) error
	close() error
}
