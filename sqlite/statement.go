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

// text returns the statement without trailing white space. The driver prepares whatever follows a
// statement each time, even white space.
func (st statement) text() (string, error) {
	b, err := files.ReadFile("sql/" + string(st) + ".sql")
	return strings.TrimSpace(string(b)), err
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
	// reads reports whether an unlocked transaction takes the write lock only when it writes.
	reads() bool
	// restart makes the log start from its beginning.
	restart(ctx context.Context) error
	// grow makes room for new rows, or fails.
	grow(ctx context.Context) error
	close() error
}
