package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlitecode"
	"github.com/sqlimit/limiter/internal/testenv"
)

// stepped is a Store beside another program, run step by step.
type stepped struct {
	*testing.T
	path           string
	store          *Store
	reader, writer *rawPool
	conn           *rawConn // the writer's
	other          *sql.DB  // pages have 512 bytes, and each row of its table has one
	open           *sql.Tx  // of other
	unlock         func()
	count          int // statements of the reader, or writes of attempt
	err            error
	took           time.Duration // the last step
}

// steps by name; n is the number after it.
var steps = map[string]func(s *stepped, n int){
	"write":    func(s *stepped, n int) { s.exec("UPDATE t SET b = randomblob(470) WHERE i <= ?", n) },
	"takename": func(s *stepped, _ int) { s.exec("CREATE TABLE limiter_free_pages (x)") },
	"vacuum":   func(s *stepped, n int) { s.exec(fmt.Sprint("PRAGMA auto_vacuum = ", n, "; VACUUM")) },
	"copy":     func(s *stepped, _ int) { s.exec("PRAGMA wal_checkpoint(PASSIVE)") },
	"truncate": func(s *stepped, _ int) { s.exec("PRAGMA wal_checkpoint(TRUNCATE)") },
	"read":     func(s *stepped, _ int) { s.begin("SELECT count(*) FROM t") },
	"lock":     func(s *stepped, _ int) { s.begin("DELETE FROM t WHERE i < 0") },
	"leave": func(s *stepped, n int) {
		time.AfterFunc(time.Duration(n)*time.Millisecond, func() { _ = s.open.Rollback() })
	},
	"lockcopies":   func(s *stepped, _ int) { s.unlock = LockCopies(s.T, s.path) },
	"unlockcopies": func(s *stepped, n int) { time.AfterFunc(time.Duration(n)*time.Millisecond, s.unlock) },
	"empty":        func(s *stepped, _ int) { testenv.Must(s, os.Truncate(s.path, 0)) },
	"remove":       func(s *stepped, _ int) { testenv.Must(s, os.Remove(s.path)) },
	"leaveroom":    func(s *stepped, n int) { Fill(s.T, s.path+".ballast", int64(n)) },
	"wait":         func(_ *stepped, n int) { <-time.After(time.Duration(n) * time.Millisecond) },
	"almost":       func(_ *stepped, n int) { <-time.After(time.Duration(n)*time.Millisecond - 1) }, // n ms minus 1 ns
	"tidy":         func(s *stepped, _ int) { s.store.tidyLog() },
	"run":          (*stepped).run,
	"closed":       func(s *stepped, _ int) { s.store.closed = true },
	"closepool":    func(s *stepped, _ int) { s.err = s.writer.close() },
	"disconnect":   func(s *stepped, _ int) { s.writer.idle = nil },
	"logsize":      func(s *stepped, n int) { s.writer.file.log = int64(n) },
	"shorten":      func(s *stepped, _ int) { s.writer.shortenLog() },
	"copyrest":     func(s *stepped, _ int) { s.err = s.conn.copyRest(s.Context()) },
	"tryrestart":   func(s *stepped, _ int) { s.err = s.writer.tryRestart(s.Context()) },
	"restarted":    func(s *stepped, _ int) { s.conn.restarted = time.Now() },
	"grow":         func(s *stepped, _ int) { s.err = s.writer.grow(s.Context()) },
	"unlimit":      func(s *stepped, _ int) { s.err = testenv.ErrorOf(s.conn.exec(s.Context(), "unlimit")) },
	"limit":        func(s *stepped, _ int) { s.conn.limit(s.Context()) },
	"wasfull":      func(s *stepped, _ int) { s.conn.full = time.Now() },
	"attempt":      (*stepped).attempt,
	"room":         func(s *stepped, n int) { s.err = tryRoom(filepath.Dir(s.path), int64(n)) },
	"missing":      func(s *stepped, _ int) { s.err = tryRoom(s.path+"-missing", 1) },
	"denied":       func(s *stepped, _ int) { AsNobody(s.T, func() { s.err = tryRoom(filepath.Dir(s.path), 1) }) },
	"restart":      func(s *stepped, _ int) { s.writer.restart(s.Context()) },
}

func (s *stepped) exec(query string, args ...any) {
	testenv.Must(s, testenv.ErrorOf(s.other.ExecContext(s.Context(), query, args...)))
}

func (s *stepped) begin(query string) {
	s.open, s.err = s.other.BeginTx(s.Context(), nil)
	testenv.Must(s, testenv.ErrorOf(s.open.Exec(query)))
}

// run lets up to n statements of the reader run, one after another.
func (s *stepped) run(n int) {
	for range n {
		synctest.Wait()
		select {
		case s.reader.free <- struct{}{}:
			<-s.reader.free
			s.count++
		default:
		}
	}
}

// attempt writes more than fits. It blocks all connections after write n, until its time is over.
func (s *stepped) attempt(n int) {
	ctx := s.store.deadlines.WithTimeout(s.Context(), 10*time.Millisecond)
	ctx.Done() // as of a caller that has waited for its turn
	s.err = attemptWrite(ctx, s.writer, func(ctx context.Context) error {
		err := testenv.ErrorOf(s.writer.exec(ctx, "free_pages_make", int64(1<<20)))
		if s.count++; s.count == n {
			<-s.writer.free
			time.AfterFunc(20*time.Millisecond, func() { s.writer.free <- struct{}{} })
		}
		return err
	})
}

func (s *stepped) pragma(name string) (value any) {
	stmt, err := s.conn.conn.Prepare("PRAGMA " + name)
	testenv.Must(s, err)
	s.conn.prepared[statement(name)] = stmt
	testenv.Must(s, s.conn.query(s.Context(), statement(name), func(columns []driver.Value) error { value = columns[0]; return nil }))
	return value
}

// age returns how long ago t was, at most 1h.
func age(t time.Time) any { return min(time.Since(t).Truncate(time.Millisecond), time.Hour) }

// facts by name; other names are pragmas of the writer.
var facts = map[string]func(s *stepped) any{
	"log": func(s *stepped) any {
		l, c, err := s.writer.frames("log_frames")
		testenv.Must(s, err)
		return fmt.Sprint(l, "/", c)
	},
	"size":      func(s *stepped) any { file, err := os.ReadFile(s.path); testenv.Must(s, err); return len(file) },
	"count":     func(s *stepped) any { return s.count },
	"pausing":   func(s *stepped) any { return s.store.pausing.Load() },
	"copying":   func(s *stepped) any { return s.store.copying.Load() },
	"writing":   func(s *stepped) any { return len(s.store.writing) },
	"blocked":   func(s *stepped) any { return age(s.writer.blocked) },
	"restarted": func(s *stepped) any { return age(s.conn.restarted) },
	"full":      func(s *stepped) any { return age(s.conn.full) },
	"limited":   func(s *stepped) any { return age(s.conn.limited) },
	"took":      func(s *stepped) any { return s.took.Round(50 * time.Millisecond) },
	"err": func(s *stepped) any {
		for _, known := range []error{nil, limiter.ErrKeyBusy, context.DeadlineExceeded, errNoRoom, errClosed, os.ErrNotExist, logInUse{copying: true}} {
			if errors.Is(s.err, known) {
				return known
			}
		}
		return sqlitecode.Of(s.err) // 1 ERROR, 5 BUSY, 13 FULL
	},
}

func TestLogAndFreePages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		rows        int
		steps, want string
	}{
		{"a short log is not copied", 999, "write 999, tidy, run 9", "log=999/0, count=1, copying=false"},
		{"a long log is copied", 1000, "write 1000, tidy, run 9", "log=1000/1000, count=3, copying=false"},
		{"a copied log is not copied again", 1000, "write 1000, copy, tidy, run 9", "count=1, writing=0"},
		{"an emptied file stays empty", 1000, "tidy, run 1, write 1000, wait 10, empty, tidy, run 9", "size=0, count=2"},
		{"writers pause for 500 frames", 500, "write 500, read, write 500, tidy, run 3, leave, run 9", "log=1000/1000, count=4, writing=0, copying=false"},
		{"a pause ends after 20 ms", 500, "write 500, read, write 500, tidy, run 3, wait 20", "writing=0, copying=true"},
		{"a pause does not end before 20 ms", 500, "write 500, read, write 500, tidy, run 3, almost 20", "writing=1, copying=true"},
		{"writers are not slowed during the first copy", 1000, "write 1000, tidy, run 1", "pausing=false"},
		{"501 frames are copied before the pause", 501, "write 500, read, write 501, tidy, run 3", "count=3, writing=0, pausing=true"},
		{"the copy ends at a reader", 501, "write 500, read, write 501, tidy, run 9", "log=1001/500, count=4, pausing=false, copying=false"},
		{"writers pause while another process copies", 3500, "write 3500, read, write 500, tidy, run 3, lockcopies, run 9", "count=4, writing=1, copying=false"},
		{"a pause for another process ends after 20 ms", 3500, "write 3500, read, write 500, tidy, run 3, lockcopies, run 9, wait 20", "writing=0"},
		{"no pause for another process below 4,000 frames", 3500, "write 3500, read, write 499, tidy, run 3, lockcopies, run 9", "count=4, writing=0"},
		{"no pause in a log of 4,000 frames if nobody copies", 3500, "write 3500, read, write 500, tidy, run 3, run 9", "log=4000/3500, count=4, writing=0"},
		{"no pause if the log was truncated", 3500, "write 3500, read, write 500, tidy, run 3, leave, truncate, run 9", "log=0/0, count=4, writing=0"},
		{"the log is checked every 10 ms", 1000, "tidy, run 9, write 1000, almost 10, tidy, run 9", "count=1"},
		{"a later check copies the log again", 1000, "tidy, run 9, write 1000, wait 10, tidy, run 9, write 1000, wait 10, tidy, run 9", "log=1000/1000, count=7"},
		{"nothing was written", 1000, "write 1000, disconnect, tidy, run 9", "count=0"},
		{"the Store is closed", 1000, "write 1000, closed, tidy, run 9", "count=0"},
		{"one goroutine copies", 1000, "write 1000, tidy, wait 10, tidy, run 9", "count=3, copying=false"},
		{"a log file of 16 MB keeps its size", 1, "logsize 16777216, tidy", "journal_size_limit=-1"},
		{"a log file of 16 MB and a byte shrinks to 16 MB", 1, "logsize 16777217, tidy", "journal_size_limit=16777216"},
		{"a log file shrinks by 16 MB at most", 1, "logsize 33554439, tidy", "journal_size_limit=16777223"},
		{"a closed pool is left alone", 1, "logsize 33554439, closepool, shorten", "err=<nil>"},
		{"the writer copies 1,000 frames", 600, "write 500, read, write 600, copy, leave, write 400, copyrest", "log=1500/1500"},
		{"the writer leaves more to the goroutine", 1001, "write 1001, copyrest", "log=1001/0"},
		{"the log begins anew", 9, "write 9, restart", "log=9/9, restarted=0s, took=0s, blocked=1h0m0s"},
		{"a reader leaves in time", 9, "write 9, read, write 9, leave 50, restart", "restarted=0s, took=50ms, blocked=1h0m0s"},
		{"a reader stays", 9, "write 9, read, write 9, restart", "restarted=1h0m0s, took=50ms, blocked=0s"},
		{"the next restart does not wait for readers", 9, "write 9, read, write 9, restart, almost 99, restart", "took=0s, blocked=99ms"},
		{"a restart after 100 ms waits again", 9, "write 9, read, write 9, restart, wait 100, restart", "took=50ms, blocked=0s"},
		{"another process copies", 9, "write 9, lockcopies, restart", "restarted=1h0m0s, took=5s, blocked=1h0m0s"},
		{"a restart waits for a copy of 200 ms", 9, "write 9, lockcopies, unlockcopies 200, restart", "restarted=0s, took=200ms"},
		{"a restart waits for a copy, then for a reader", 9, "write 9, read, write 9, lockcopies, unlockcopies 200, restart", "restarted=1h0m0s, took=250ms, blocked=0s"},
		{"no restart within 100 ms of the last", 9, "write 9, restarted, almost 100, restart", "log=9/0"},
		{"a restart 100 ms after the last", 9, "write 9, restarted, wait 100, restart", "log=9/9"},
		{"a try meets a copy", 9, "write 9, lockcopies, tryrestart", "err=the log is in use, restarted=1h0m0s"},
		{"a try meets a lock beside an empty log", 9, "lock, tryrestart", "err=5, restarted=1h0m0s"},
		{"a try meets a closed pool", 9, "closepool, tryrestart", "err=limiter: not applied: the Store or its database is closed; make a new one"},
		{"a small file grows by 64 pages", 1, "grow", "page_count=67, freelist_count=65, max_page_count=67, log=66/66"},
		{"a larger file grows by an eighth", 1600, "grow", "freelist_count=205, max_page_count=1835"},
		{"a large file grows by 512 pages", 4200, "grow", "freelist_count=517, max_page_count=4796"},
		{"a file that keeps no free pages", 1, "vacuum 1, grow, wait 100, limit", "freelist_count=0, max_page_count=4294967294, limited=1h0m0s"},
		{"a file that frees pages on demand", 1, "vacuum 2, grow", "freelist_count=0, max_page_count=4294967294"},
		{"a table has the name", 1, "takename, grow", "err=1, max_page_count=3, full=1h0m0s"},
		{"another transaction is open", 1, "lock, grow", "err=5, full=1h0m0s"},
		{"the file was removed", 1, "remove, grow", "err=file does not exist, full=1h0m0s"},
		{"the pool is closed", 1, "closepool, grow", "err=limiter: not applied: the Store or its database is closed; make a new one"},
		{"the disk has room for log or file only", 1600, "leaveroom 200000, grow", "err=the disk is full, full=0s, max_page_count=1630, freelist_count=0"},
		{"a full disk is not tried for 100 ms", 1, "leaveroom 0, grow, almost 100, leaveroom 280000, grow", "err=the disk is full, full=99ms"},
		{"a full disk is tried again after 100 ms", 1600, "leaveroom 0, grow, wait 100, leaveroom 280000, grow", "err=<nil>, freelist_count=205"},
		{"there is room, and none of it stays in use", 1, "leaveroom 131072, room 131072, room 131072", "err=<nil>"},
		{"one byte is missing", 1, "leaveroom 131072, room 131073", "err=the disk is full"},
		{"there is no directory", 1, "missing", "err=the disk is full"},
		{"the directory may not be written", 1, "denied", "err=<nil>"}, // proves nothing if the test is not root
		{"the limit follows the file", 1, "unlimit, limit", "max_page_count=2, limited=0s"},
		{"the limit is not set again within 100 ms", 1, "limit, unlimit, almost 100, limit", "max_page_count=4294967294, limited=99ms"},
		{"the limit is set again after 100 ms", 1, "limit, unlimit, wait 100, limit", "max_page_count=2, limited=0s"},
		{"a write is tried after each growth", 1, "attempt", "count=10, err=13"}, // 2 + mostGrowths calls
		{"no growth is possible", 1, "wasfull, attempt", "count=2, err=13"},
		{"the restart used up the time", 1, "attempt 1", "count=1, err=context deadline exceeded"},
		{"the growth took too long", 1, "attempt 2", "count=2, err=context deadline exceeded"},
		{"a growth that fails took too long", 1, "wasfull, attempt 2", "count=2, err=context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testenv.Race && c.rows > 2000 {
				t.Skip("the race detector is slow here, and only one goroutine runs at a time")
			}
			t.Parallel()
			dir := t.TempDir()
			if strings.Contains(c.steps, "leaveroom") {
				dir = Tmpfs(t, 4<<20)
			}
			synctest.Test(t, func(t *testing.T) {
				s := newStepped(t, filepath.Join(dir, "app.db"), c.rows)
				for step := range strings.SplitSeq(c.steps, ", ") {
					step, number, _ := strings.Cut(step, " ")
					n, _ := strconv.Atoi(number)
					begin := time.Now()
					steps[step](s, n)
					s.took = time.Since(begin)
					synctest.Wait()
				}
				for fact := range strings.SplitSeq(c.want, ", ") {
					name, value, _ := strings.Cut(fact, "=")
					find := facts[name]
					if find == nil {
						find = func(s *stepped) any { return s.pragma(name) }
					}
					testenv.Equal(t, fmt.Sprint(find(s)), value, name)
				}
				s.end()
			})
		})
	}
}

func newStepped(t *testing.T, path string, rows int) *stepped {
	store, err := Open(path)
	testenv.Must(t, err)
	other, err := sql.Open("sqlite", "file:"+path+"?_pragma=wal_autocheckpoint(0)")
	testenv.Must(t, err)
	s := &stepped{T: t, path: path, store: store, other: other}
	s.exec(`PRAGMA page_size = 512; PRAGMA journal_mode = WAL; CREATE TABLE t (i INTEGER PRIMARY KEY, b);
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO t SELECT i, zeroblob(470) FROM n; PRAGMA wal_checkpoint(TRUNCATE)`, rows)
	_, writer, err := store.pools()
	testenv.Must(t, err)
	s.writer, s.reader = writer.(*rawPool), newRawPool(store.file, readerParams, 0, new(atomic.Int64))
	store.reader = s.reader
	s.conn, err = s.writer.acquire()
	testenv.Must(t, err)
	s.writer.release(s.conn)
	return s
}

// end lets all goroutines finish, then closes both databases.
func (s *stepped) end() {
	for range 9 {
		s.run(1)
		if synctest.Wait(); !s.store.copying.Load() && len(s.store.writing) > 0 { // copyLog ends its own pause
			<-s.store.writing
		}
	}
	if s.open != nil {
		_ = s.open.Rollback()
	}
	_ = s.store.Close() // its file may be gone
	testenv.Must(s, s.other.Close())
}

// LockCopies keeps all processes from copying the log, as a process that copies it does. Package
// sqlite_test also uses LockCopies, Fill, Tmpfs and AsNobody.
func LockCopies(t *testing.T, path string) (unlock func()) {
	t.Helper()
	const (
		checkpointLock = 121 // the byte of -shm that a connection locks while it copies: WAL_CKPT_LOCK
		lockOpenFile   = 37  // F_OFD_SETLK of fcntl: unlike F_SETLK, it also keeps this process out
	)
	shared, err := os.OpenFile(path+"-shm", os.O_RDWR, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = shared.Close() }) // closing it earlier would drop SQLite's locks in this process
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: checkpointLock, Len: 1}
	testenv.Must(t, syscall.FcntlFlock(shared.Fd(), lockOpenFile, &lock))
	return func() {
		lock.Type = syscall.F_UNLCK
		testenv.Must(t, syscall.FcntlFlock(shared.Fd(), lockOpenFile, &lock))
	}
}

// Fill writes a file that leaves room for n bytes on its disk.
func Fill(t *testing.T, path string, n int64) {
	t.Helper()
	_ = os.Remove(path)
	var disk syscall.Statfs_t
	testenv.Must(t, syscall.Statfs(filepath.Dir(path), &disk))
	testenv.Must(t, os.WriteFile(path, make([]byte, int64(disk.Bfree*uint64(disk.Bsize))-n), 0o600))
}

// Tmpfs returns a directory that is a filesystem of its own.
func Tmpfs(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		testenv.Unavailable(t, "tmpfs", err)
	}
	t.Cleanup(func() { testenv.Must(t, syscall.Unmount(dir, 0)) })
	return dir
}

// AsNobody calls f as nobody, if the test is root. Goroutines of f keep the rights of root.
func AsNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	testenv.Must(t, syscall.Setfsuid(nobody))
	defer func() { testenv.Must(t, syscall.Setfsuid(0)) }()
	f()
}
