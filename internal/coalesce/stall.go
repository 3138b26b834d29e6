package coalesce

import (
	"slices"
	"time"
)

// A statement of one row may wait for as long as its takes have time: somebody has locked
// the row, and it holds up nobody. But it is counted in its line, and when all that there
// may be wait for locked rows, then so does everybody else. So it is counted for
// [Limits.Patience] only; after that another one may be sent in its place. One whose takes
// have failed together with others has a tenth of that: some of them are locked, as that
// statement has found out, and the others have waited for it.

// watch notes that a flight is sent, if it is of one row: those of several do not wait.
func (q *Queue) watch(f *flight, from *line) {
	if q.limits.Patience == 0 || len(f.rows) != 1 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	patience := q.limits.Patience
	if calls := f.rows[0].calls; len(calls) > 0 && calls[0].again {
		patience /= 10
	}
	f.line, f.due = from, time.Now().Add(patience)
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
	if len(q.shared.lanes) == 0 && len(q.alone.lanes) == 0 {
		return
	}
	var first time.Time
	for _, f := range q.watched {
		if !f.stalled && (first.IsZero() || f.due.Before(first)) {
			first = f.due
		}
	}
	if !first.IsZero() && (q.alarmed.IsZero() || first.Before(q.alarmed)) {
		q.alarmed = first
		time.AfterFunc(time.Until(first), q.overdue)
	}
}

// overdue sends statements in place of those that are overdue.
func (q *Queue) overdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alarmed = time.Time{}
	for _, f := range q.watched {
		if f.stalled || time.Now().Before(f.due) {
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
