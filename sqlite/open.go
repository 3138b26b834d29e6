package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"

	"modernc.org/sqlite"
)

const memoryPath = ":memory:"

// readers is how many refusals and looks are read at the same time. A read takes a few
// microseconds, so a few keep all cores busy. Each connection costs memory for its page cache.
const readers = 4

// The parameters of the connections. The Store's own connections have no busy timeout. The Store
// waits for locks in Go, where the end of a context ends the wait; this driver's busy wait ignores the
// context. _error_rc keeps messages of earlier operations out of error texts.
//
// The log (-wal) grows while another connection reads in one transaction, and keeps its size unless
// there is a limit. 15 s of takes beside such a reader made a log of 800 MB for good. The limit of the
// writer changes: see log.go.
const (
	logLimit     = "_pragma=journal_size_limit(16777216)&"
	memoryParams = "_txlock=immediate&_error_rc=1"
	writerParams = memoryParams + "&_busy_timeout=0&_journal_mode=WAL&_synchronous=NORMAL" +
		"&_pragma=wal_autocheckpoint(0)&_pragma=secure_delete(1)&_pragma=max_page_count(1)" // see log.go and free_pages.go
	// Readers also switch to WAL, because the first one may come before the writer.
	readerParams = "_busy_timeout=0&_journal_mode=WAL&_query_only=1&_error_rc=1"
	// The users of what DB returns expect SQLite to wait.
	sharedParams = logLimit + "_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate&_error_rc=1"
)

// DB returns the database of the Store, for migrations and queries. For a Store of [New] it is the
// pool that was passed. For a file of [Open] it is a pool of one connection that waits up to 5 s
// for locks. For ":memory:" it is the only connection there is, so a transaction on it blocks the
// Store. [Store.Close] closes the database if Open opened it.
func (s *Store) DB() *sql.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil {
		return s.db
	}
	if s.path == memoryPath {
		s.openPools()
	} else {
		s.db = openPool(s.watched().connector(sharedParams), 1)
	}
	if s.closed {
		_ = s.db.Close() // never used: there is nothing that could fail
	}
	return s.db
}

// pools returns the pools for reads and writes. The first call opens them.
func (s *Store) pools() (reader, writer pool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	if s.writer == nil {
		s.openPools()
	}
	return s.reader, s.writer, nil
}

func (s *Store) openPools() {
	if s.path == memoryPath {
		// One connection: each has a database of its own. Pools keep it open when it is idle.
		s.db = openPool(connector(connectMemory), 1)
		s.writer = &sqlPool{db: s.db, own: true}
		s.reader = s.writer
		return
	}
	s.writer = newRawPool(s.watched(), writerParams, 1, &s.counters.ConnectionsLost)
	s.reader = newRawPool(s.watched(), readerParams, readers, &s.counters.ConnectionsLost)
}

// watched returns the file of the Store. The first call resolves its path.
func (s *Store) watched() *watchedFile {
	if s.file == nil {
		s.file = watch(s.path)
	}
	return s.file
}

// closePools closes the pools. It does not hold s.mu while it waits for them: other operations have to learn
// that the Store is closed.
func (s *Store) closePools() error {
	s.mu.Lock()
	db, reader, writer := s.db, s.reader, s.writer
	s.mu.Unlock()
	var errs []error
	// Close the writer last. The last connection to a file removes the -wal and -shm files, which a
	// connection that only reads cannot do.
	if db != nil && s.path != "" && s.path != memoryPath {
		errs = append(errs, db.Close())
	}
	if reader != nil && reader != writer {
		errs = append(errs, reader.close())
	}
	if writer != nil {
		errs = append(errs, writer.close())
	}
	return errors.Join(errs...)
}

// fileURI returns a path with forward slashes as a URI. See https://www.sqlite.org/uri.html.
func fileURI(path string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString("file:")
	switch {
	case strings.HasPrefix(path, "/"):
		b.WriteString("//") // an empty authority, or that of //server/share would be one
	case len(path) > 2 && path[1] == ':' && path[2] == '/':
		b.WriteString("///") // a drive letter; SQLite removes the slash before it
	}
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/._-~:", c) >= 0:
			b.WriteByte(c)
		default: // ? and # end a path, % is the escape; the rest is escaped to be sure
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// openPool returns a pool of up to n connections that stay open when idle. Opening a connection
// costs about as much as a hundred decisions.
func openPool(c connector, n int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

func connectMemory(ctx context.Context) (driver.Conn, error) {
	base, err := sqlite.NewConnector("file::memory:?" + memoryParams)
	if err != nil {
		return nil, err
	}
	return base.Connect(ctx)
}

// connector opens connections. It reports all errors at the first use; sql.Open reports some
// earlier.
type connector func(context.Context) (driver.Conn, error)

// Connect opens a connection.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) { return c(ctx) }

// Driver returns the driver of the connections.
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }
