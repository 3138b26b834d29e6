package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// On a full disk the log (-wal) cannot grow. But it can start from its beginning, in the space that it
// has, if the database file has a place for each page. Then the Store can decide keys that have a
// row. The writer of a Store of [Open] maintains this: it takes new pages only from the free ones in
// the file (limit), and adds free pages when there are none (grow). If the disk has no room for those, SQLite
// rejects what needs a new page: new keys, and seldom a row that has become longer.

// attemptWrite is attempt for an f that writes through p and leaves no transaction open. If the
// disk is full, it makes room and calls f again.
func attemptWrite(ctx context.Context, p pool, f func(context.Context) error) error {
	err := attempt(ctx, f)
	if isFull(err) {
		p.restart(ctx) // if it fails, so does f
		if ctx.Err() != nil {
			return batch.Unsent(ctx, false) // copying the log used up the time; this process is not overloaded
		}
		err = attempt(ctx, f)
	}
	for range mostGrowths {
		if !isFull(err) {
			break
		}
		if failed := attempt(ctx, p.grow); failed != nil {
			if ctx.Err() != nil {
				return failed // the caller left, which says nothing about the disk
			}
			break
		}
		if ctx.Err() != nil {
			return batch.Unsent(ctx, false) // the new pages used up the time
		}
		err = attempt(ctx, f)
	}
	return err
}

func isFull(err error) bool { return sqlitecode.Of(err) == sqlitecode.Full }

// readersLeave is how long restart waits for connections that read from the log. A Store reads for
// microseconds, but another program may read for hours.
const readersLeave = 50 * time.Millisecond

// logInUse is the error of a log that cannot begin anew yet: another connection copies it, or reads from it.
type logInUse struct{ copying bool }

func (logInUse) Error() string { return "the log is in use" }
func (logInUse) Code() int     { return sqlitecode.Busy }

// restart makes the log start from its beginning, in the space that it has. It waits up to readersLeave for
// readers. If one stays, it does not wait for readers again for checkEvery. For another connection's copy it
// waits as long as the operation may, because a slow disk needs longer.
func (p *rawPool) restart(ctx context.Context) {
	latest := time.Now()
	waits := latest.Sub(p.blocked) >= checkEvery
	if waits {
		latest = latest.Add(readersLeave)
	}
	_ = attempt(ctx, func(ctx context.Context) error {
		err := p.tryRestart(ctx)
		now := time.Now()
		if errors.Is(err, logInUse{copying: true}) {
			latest = now.Add(readersLeave)
		}
		if !now.After(latest) {
			return err
		}
		if waits && err != nil {
			p.blocked = now
		}
		return nil
	})
}

func (p *rawPool) tryRestart(ctx context.Context) error {
	c, err := p.acquire()
	if err != nil {
		return err
	}
	defer p.release(c)
	if time.Since(c.restarted) < checkEvery {
		return nil // the log had room: f failed for another reason
	}
	// Copying a long log takes longer than ctx leaves, and no write succeeds before.
	err = c.query(context.WithoutCancel(ctx), "restart", func(columns []driver.Value) error {
		var busy, log, copied int64
		if err := scan(columns, &busy, &log, &copied); err != nil || busy == 0 {
			return err
		}
		return logInUse{copying: log < 0}
	})
	if err == nil {
		c.restarted = time.Now()
	}
	return err
}

const (
	// leastGrowth and mostGrowth bound how many pages grow adds: an eighth of the existing ones.
	leastGrowth, mostGrowth = 64, 512
	// mostGrowths is how often one transaction may add pages: it may split mergedKeys pages.
	mostGrowths = 8
)

var errNoRoom = errors.New("the disk is full")

// grow enlarges the database file by free pages.
func (p *rawPool) grow(ctx context.Context) error {
	c, err := p.acquire()
	if err != nil {
		return err
	}
	defer p.release(c)
	if time.Since(c.full) < checkEvery {
		return errNoRoom
	}
	path, err := filepath.EvalSymlinks(p.file.path) // SQLite writes where a link leads to
	if err == nil {
		err = c.addPages(ctx, filepath.Dir(path))
	}
	if err != nil {
		_, _ = c.exec(ctx, "rollback")
		_, _ = c.exec(ctx, "limit")
		if errors.Is(err, errNoRoom) {
			c.full = time.Now()
		}
		return err
	}
	return c.copyRest(ctx)
}

// limit lowers max_page_count to the current number of pages, because a VACUUM may have removed some.
// It takes 8 µs, so it runs at most once in checkEvery.
func (c *rawConn) limit(ctx context.Context) {
	if c.unlimited || time.Since(c.limited) < checkEvery {
		return
	}
	_, _ = c.exec(ctx, "limit") // if it fails, the old limit stays
	c.limited = time.Now()
}

// addPages begins a transaction and adds free pages to the database. The connection has
// secure_delete on, so that SQLite writes these pages. Otherwise the file would have a hole there,
// which reserves no space on the disk.
func (c *rawConn) addPages(ctx context.Context, dir string) error {
	if _, err := c.exec(ctx, "begin_locked"); err != nil {
		return err
	}
	var pages, size, vacuum int64
	err := c.query(ctx, "size", func(columns []driver.Value) error { return scan(columns, &pages, &size, &vacuum) })
	if err != nil {
		return err
	}
	room := size * min(max(pages/8, leastGrowth), mostGrowth)
	if err := tryRoom(dir, 2*room); err != nil { // in the log, and in the file
		return err
	}
	exec := func(st statement, args ...any) {
		if err == nil {
			_, err = c.exec(ctx, st, args...)
		}
	}
	exec("unlimit")
	if c.unlimited = vacuum != 0; !c.unlimited {
		exec("free_pages_make", room)
		exec("free_pages_drop")
		exec("limit")
	}
	exec("commit")
	return err
}

// tryRoom returns errNoRoom if the disk has no room for this many bytes. It writes them to a
// temporary file in dir and removes it, because no other check is certain.
func tryRoom(dir string, bytes int64) error {
	f, err := os.CreateTemp(dir, ".limiter-room-*")
	if os.IsPermission(err) {
		return nil // cannot tell
	}
	if err != nil {
		return errNoRoom
	}
	_ = os.Remove(f.Name()) // so that a process that is killed leaves nothing; Windows allows it only later
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	for block := make([]byte, 64<<10); bytes > 0; bytes -= int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return errNoRoom
		}
	}
	return nil
}
