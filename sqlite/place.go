package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/sqlimit/limiter"
)

// lookEvery is how long operations rely on a check of the file. What is granted in a removed file
// is lost, so this is short. A check costs about 3 µs.
const lookEvery = 100 * time.Millisecond

// place is a path and the file that the Store found or created there. SQLite does not notice when
// the file is removed or replaced: its connections continue in a file without a name, which
// disappears when they close. A new connection creates an empty file, or opens the other file with
// the wrong log. See DESIGN.md, "The store watches its file".
type place struct {
	path string // absolute, if the working directory can be told

	looked  atomic.Int64 // when, by the wall clock: the other one stands still in a frozen process
	verdict atomic.Pointer[error]

	mu    sync.Mutex
	file  os.FileInfo // nil before the first connection
	conns int         // how many connections hold the companions
	// companions are the -wal and -shm files. The last connection to a file removes them, so they are
	// known only while there is a connection.
	companions []companion
}

type companion struct {
	suffix, path string
	file         os.FileInfo
}

func newPlace(path string) *place {
	// The program may change its directory between two connections. If the directory is unknown,
	// SQLite fails on the relative path and says so.
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return &place{path: path}
}

// check returns what was wrong with the file at most lookEvery ago.
func (p *place) check() error {
	now, looked := time.Now().UnixNano(), p.looked.Load()
	// One operation checks; the others rely on the check before and do not wait.
	if d := now - looked; (d < 0 || d >= int64(lookEvery)) && p.looked.CompareAndSwap(looked, now) {
		return p.look()
	}
	if err := p.verdict.Load(); err != nil {
		return *err
	}
	return nil
}

// look returns an error if the path leads to another file now, or to none. If it leads to the
// Store's file again, all is well, because nothing was written in between.
func (p *place) look() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.compare()
	p.verdict.Store(&err)
	return err
}

func (p *place) compare() error {
	if p.file == nil {
		return nil
	}
	if err := leadsTo(p.path, p.file); err != nil {
		return moved("the database", err)
	}
	if p.conns > 0 {
		p.note()
	}
	for _, c := range p.companions {
		if err := leadsTo(c.path, c.file); err != nil {
			return moved("the file "+c.suffix+" of the database", err)
		}
	}
	return nil
}

var errOther = errors.New("there is another file")

func leadsTo(path string, file os.FileInfo) error {
	now, err := stat(path)
	if err == nil && !os.SameFile(file, now) {
		err = errOther
	}
	return err
}

func moved(what string, err error) error {
	return fmt.Errorf("%w: %s was removed or replaced while this process had it open; put it back as it was, "+
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
func (p *place) connect(ctx context.Context, params string) (driver.Conn, error) {
	if err := p.look(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	known := p.file
	p.mu.Unlock()
	if known == nil {
		known, _ = stat(p.path) // if that fails there is none, or SQLite tells what else is wrong
	}
	mode := "mode=rwc&"
	if known != nil {
		mode = "mode=rw&"
	}
	base, err := sqlite.NewConnector(fileURI(filepath.ToSlash(p.path)) + "?" + mode + params)
	if err != nil {
		return nil, err
	}
	conn, err := base.Connect(ctx)
	if err == nil {
		if err = p.opened(known); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		// If the file is at fault, all other operations must know at once.
		if moved := p.look(); moved != nil {
			err = moved
		}
		return nil, err
	}
	return conn, nil
}

// connector returns a connector for connections with the given parameters.
func (p *place) connector(params string) connector {
	return func(ctx context.Context) (driver.Conn, error) { return p.connect(ctx, params) }
}

// opened checks that a new connection leads to the Store's file. known is the file that existed
// before, if any.
func (p *place) opened(known os.FileInfo) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		return p.compare()
	}
	if known != nil {
		if err := leadsTo(p.path, known); err != nil {
			return moved("the database", err)
		}
	}
	file, err := stat(p.path)
	if err != nil {
		return moved("the database", err)
	}
	p.file = file
	return nil
}

// hold notes that a connection keeps the -wal and -shm files in place until release.
func (p *place) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns++
	p.note()
}

// note records the -wal and -shm files that are not known yet. SQLite creates them at the first
// read of a file that was just switched to WAL.
func (p *place) note() {
	if len(p.companions) == len(suffixes) {
		return
	}
	path, err := filepath.EvalSymlinks(p.path) // which is where SQLite puts them
	if err != nil {
		return // then the path leads nowhere, which is found out otherwise
	}
	for _, suffix := range suffixes {
		known := func(c companion) bool { return c.suffix == suffix }
		if file, err := stat(path + suffix); err == nil && !slices.ContainsFunc(p.companions, known) {
			p.companions = append(p.companions, companion{suffix, path + suffix, file})
		}
	}
}

// suffixes are those of the companions.
var suffixes = []string{"-wal", "-shm"}

// release undoes hold, before the connection is closed.
func (p *place) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns--
	if p.conns == 0 {
		p.companions = nil
	}
}
