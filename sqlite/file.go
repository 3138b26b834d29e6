package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/sqlimit/limiter"
)

// Operations rely on a check of the file for checkEvery, and for checkUses uses of a connection. What
// is granted in a removed file is lost, so both are low. A copy of the log makes an emptied file look
// whole, so a check precedes each copy. A check costs about 3 µs.
const (
	checkEvery = 100 * time.Millisecond
	checkUses  = 32
)

// suffixes are those of the files that a database consists of.
var suffixes = [...]string{"", "-wal", "-shm"}

// watchedFile is the path of a database, and the files that the Store found or created there. SQLite
// does not notice when a file is removed or replaced: its connections continue in a file without a
// name, which disappears when they close. A new connection creates an empty file, or opens the other
// file with the wrong log. See DESIGN.md, "The store watches its file".
type watchedFile struct {
	path string // absolute, if the working directory can be told

	mu      sync.Mutex
	checked int64 // when, by the wall clock: the other one stands still in a frozen process
	uses    int   // how often the last check was relied on
	err     error // what the last check found
	log     int64 // the size of -wal
	conns   int   // how many connections keep -wal and -shm
	// files has the file of each suffix, nil if it is not known. The database is known after the first
	// connection. The last connection removes -wal and -shm, so they are known only while there is one.
	files [len(suffixes)]os.FileInfo
}

func watch(path string) *watchedFile {
	// The program may change its directory between two connections. If the directory is unknown,
	// SQLite fails on the relative path and says so.
	if runtime.GOOS == "windows" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
	} else if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		path = dir + "/" + path // filepath.Abs would not follow a link before ".."
	}
	return &watchedFile{path: path}
}

// check returns what the last check found. It checks the files anew after checkEvery or checkUses.
func (f *watchedFile) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses++
	if d := time.Now().UnixNano() - f.checked; d < 0 || d >= int64(checkEvery) || f.uses > checkUses {
		return f.compare()
	}
	return f.err
}

// checkNow returns what is wrong with the files.
func (f *watchedFile) checkNow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.compare()
}

// logSize returns the size of -wal at the last check.
func (f *watchedFile) logSize() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log
}

// compare compares the files at the path with those of the Store. If they are the Store's again, all
// is well, because nothing was written in between.
func (f *watchedFile) compare() error {
	f.checked, f.uses, f.err = time.Now().UnixNano(), 0, nil
	if f.files[0] == nil {
		return nil
	}
	path := f.path
	for i, suffix := range suffixes {
		if i == 1 {
			path, f.err = filepath.EvalSymlinks(path) // SQLite puts them beside the file that a link leads to
			if f.err != nil {
				f.err = moved("", f.err)
				return f.err
			}
		}
		file, err := stat(path + suffix)
		if err == nil && suffix == "-wal" {
			f.log = file.Size()
		}
		switch {
		case f.files[i] != nil:
			f.err = same(suffix, f.files[i], file, err)
			if f.err == nil && file.Size() == 0 && suffix != "-wal" {
				f.err = moved(suffix, errEmptied) // a log may be empty
			}
			if f.err != nil {
				return f.err
			}
		case err == nil && f.conns > 0:
			f.files[i] = file // SQLite creates it at the first read of a file that was just switched to WAL
		}
	}
	return nil
}

var (
	errOther   = errors.New("there is another file")
	errEmptied = errors.New("the file is empty")
)

// same returns an error if stat found another file than the known one, or failed.
func same(suffix string, known, file os.FileInfo, err error) error {
	if err == nil && !os.SameFile(known, file) {
		err = errOther
	}
	if err != nil {
		return moved(suffix, err)
	}
	return nil
}

func moved(suffix string, err error) error {
	what := "the database"
	if suffix != "" {
		what = "the file " + suffix + " of the database"
	}
	return fmt.Errorf("%w: %s was removed, replaced or emptied while this process had it open; put it back as it was, "+
		"or end every process that has it open, remove the -wal and -shm files that they leave, and start again: %w", limiter.ErrMisconfigured, what, err)
}

// stat returns the identity of the file at path.
func stat(path string) (os.FileInfo, error) {
	file, err := os.Stat(path)
	if err == nil {
		os.SameFile(file, file) // Windows reads the file's identity only when it is asked for
	}
	return file, err
}

// connect opens a connection with the given parameters. Only the first connection of a Store
// creates the file.
func (f *watchedFile) connect(ctx context.Context, params string) (driver.Conn, error) {
	f.mu.Lock()
	err, first := f.compare(), f.files[0] == nil
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	before, err := stat(f.path)
	mode := "mode=rw&"
	if err != nil && first {
		mode = "mode=rwc&" // there is none, or SQLite tells what else is wrong
	}
	base, err := sqlite.NewConnector(fileURI(filepath.ToSlash(f.path)) + "?" + mode + params)
	if err != nil {
		return nil, err
	}
	conn, err := base.Connect(ctx)
	if err == nil {
		if err = f.opened(before); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		// If the file is at fault, all other operations must know at once.
		if moved := f.checkNow(); moved != nil {
			err = moved
		}
		return nil, err
	}
	return conn, nil
}

// connector returns a connector for connections with the given parameters.
func (f *watchedFile) connector(params string) connector {
	return func(ctx context.Context) (driver.Conn, error) { return f.connect(ctx, params) }
}

// opened checks that a new connection leads to the Store's file. before is the file that existed
// before the connection, if any.
func (f *watchedFile) opened(before os.FileInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[0] != nil {
		return f.compare()
	}
	file, err := stat(f.path)
	if before == nil {
		before = file
	}
	if err := same("", before, file, err); err != nil {
		return err
	}
	f.files[0] = file
	return nil
}

// hold notes that a connection keeps the -wal and -shm files in place until release.
func (f *watchedFile) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns++
	_ = f.compare() // check returns the error
}

// release undoes hold, before the connection is closed.
func (f *watchedFile) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns--
	if f.conns == 0 {
		f.files[1], f.files[2] = nil, nil
	}
}
