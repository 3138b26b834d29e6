package coalesce

import (
	"slices"
	"time"
)

// A statement of one row may wait for as long as its takes have time: somebody has locked
// the row, and it holds up nobody. But it is counted in its line, and when all that there
// may be wait for locked rows, then so does everybody else. So it is counted for
// [Limits.Patience] only; after that another one may be sent in its place.

// watch notes that a flight is sent, if it is of one row: those of several do not wait.
func (q *Queue) watch(f *flight, from *line) {
	if q.limits.Patience == 0 || len(f.rows) != 1 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f.line, f.sent = from, time.Now()
	q.watched = append(q.watched, f)
	q.alarm()
}

// landed forgets a flight, and reports whether it was still counted.
func (q *Queue) landed(f *flight) bool {
	if i := slices.Index(q.watched, f); i >= 0 {
		q.watched = slices.Delete(q.watched, i, i+1)
	}
	return !f.stalled
}

// alarm sees to it that flights for which others wait are looked at when they are overdue.
func (q *Queue) alarm() {
	if q.alarmed || len(q.shared.lanes) == 0 && len(q.alone.lanes) == 0 {
		return
	}
	for _, f := range q.watched { // the first was sent first
		if !f.stalled {
			q.alarmed = true
			time.AfterFunc(q.limits.Patience-time.Since(f.sent), q.overdue)
			return
		}
	}
}

// overdue sends statements in place of those that are overdue.
func (q *Queue) overdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alarmed = false
	for _, f := range q.watched {
		if f.stalled || time.Since(f.sent) < q.limits.Patience {
			continue
		}
		f.stalled = true
		f.line.flying--
		if q.first(f.line) != nil && f.line.flying < q.most(f.line) {
			f.line.flying++
			go q.lead(f.line)
		}
	}
	q.alarm()
}

// rejoin reports whether a goroutine whose statement was overdue may go on with the next
// one: another may have taken its place.
func (q *Queue) rejoin(from *line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if from.flying >= q.most(from) {
		return false
	}
	from.flying++
	return true
}
