package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
)

// SQLite copies the log (-wal) to the database file, so that the log can begin anew. By itself it does
// so in a commit, while all other writers of the process wait. Here a goroutine does it, on a
// connection that no writer needs. See DESIGN.md, "A goroutine copies the log".
const (
	// checkLogEvery is how often writers start the goroutine. If the log is short, it costs 40 µs.
	checkLogEvery = 10 * time.Millisecond
	// longLog is how many frames (4 MB) the log has before it is copied.
	longLog = 1000
	// shortRest is how many frames are copied while the writers of the process pause, and pauseWrites
	// is how long they pause at most.
	shortRest   = 500
	pauseWrites = 20 * time.Millisecond
	// pausingLog is how many frames (16 MB) the log has before the writers of all processes pause
	// at the same time.
	pausingLog = 4000
	// slowWrite is how long each transaction pauses while the log may grow faster than it is copied.
	slowWrite = time.Millisecond
	// logStep is how many bytes the file of the log loses each time that the log begins anew. The file
	// keeps the last step. Cutting off 240 MB at once would stop the writers for 0.3 s.
	logStep = 16 << 20
)

// tidyLog starts a goroutine that copies the log if it is long. Its caller may write, and has released
// its connection.
func (s *Store) tidyLog() {
	if time.Since(s.logChecked) < checkLogEvery {
		return
	}
	s.logChecked = time.Now()
	s.mu.Lock()
	reader, _ := s.reader.(*rawPool)
	writer, ok := s.writer.(*rawPool)
	s.mu.Unlock()
	if !ok || !writer.connected() {
		return // nothing was written
	}
	writer.shortenLog()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.copying.CompareAndSwap(false, true) {
		s.copies.Go(func() {
			defer s.copying.Store(false)
			s.copyLog(reader)
		})
	}
}

// copyLog copies the log until few frames are left, because writers add frames meanwhile. For these
// frames the writers pause: the log begins anew at the first write after all of it was copied. Only
// then does SQLite sync the database file, and the pause may end before a long sync does.
func (s *Store) copyLog(reader *rawPool) {
	defer s.pausing.Store(false)
	for again := false; ; again = true {
		log, copied, err := reader.frames("log_frames")
		switch {
		case err != nil || log < longLog || copied == log:
			return
		case reader.file.checkNow() != nil:
			return // a copy makes an emptied file look whole
		case log-copied <= shortRest:
			s.writing <- struct{}{}
			pause := time.AfterFunc(pauseWrites, func() { <-s.writing })
			found, _, _ := reader.frames("checkpoint")
			// If another process copies a long log, the pause continues for its full length, so that
			// no process writes meanwhile.
			if busy := found < 0; (!busy || log < pausingLog) && pause.Stop() {
				<-s.writing
			}
			return
		}
		s.pausing.Store(again)
		if _, now, err := reader.frames("checkpoint"); err != nil || now <= copied {
			return // another connection reads a snapshot before the next frame, or copies the log
		}
	}
}

// frames runs st, and returns how many frames the log has and how many of them are copied. Both are -1
// if another connection copies the log.
func (p *rawPool) frames(st statement) (log, copied int64, err error) {
	err = p.query(context.Background(), st, func(columns []driver.Value) error { return scan(columns[1:], &log, &copied) })
	return log, copied, err
}

// connected reports whether the pool has a connection that is not in use.
func (p *rawPool) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// shortenLog makes the file of the log shorter by a step when the writer next begins the log anew.
func (p *rawPool) shortenLog() {
	size := p.file.logSize()
	if size <= logStep {
		return
	}
	c, err := p.acquire()
	if err != nil {
		return
	}
	defer p.release(c)
	// SQLite knows no parameters here. If it fails, the file stays long.
	limit := fmt.Sprintf("PRAGMA journal_size_limit = %d", max(size-logStep, logStep))
	_, _ = c.conn.(driver.ExecerContext).ExecContext(context.Background(), limit, nil)
}

// logRest returns how many frames of the log are to be copied.
func (c *rawConn) logRest(ctx context.Context) int64 {
	var log, copied int64
	_ = c.query(ctx, "log_frames", func(columns []driver.Value) error { return scan(columns[1:], &log, &copied) })
	return log - copied
}

// copyRest copies the log, as far as its readers allow, unless it is so long that the goroutine does.
func (c *rawConn) copyRest(ctx context.Context) error {
	if c.logRest(ctx) > longLog {
		return nil
	}
	return c.query(ctx, "checkpoint", nil)
}
