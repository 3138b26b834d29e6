package batch

import (
	"slices"
	"time"
)

// A statement of one key may wait for a row lock until the time of its calls is over. It holds up
// no other key, but it counts in its line. If all statements of a line waited for locks, every
// other key would wait as well. So a statement counts for [Config.LockWait] only; then the line may
// send another one. Calls that failed together with others have a tenth of that, because some of
// their rows are probably locked, and the other calls have waited long enough.

// watch sets when a statement stops counting. It watches only statements of one key: the store
// gives those of several keys a short lock timeout.
func (q *Queue) watch(st *statement, from *line) {
	if q.config.LockWait == 0 || len(st.groups) != 1 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := q.config.LockWait
	if st.groups[0].Calls[0].retried {
		wait /= 10
	}
	st.line, st.due = from, time.Now().Add(wait)
	q.watched = append(q.watched, st)
	q.setTimer()
}

// unwatch ends the watch of a statement, and reports whether it still counted.
func (q *Queue) unwatch(st *statement) bool {
	if i := slices.Index(q.watched, st); i >= 0 {
		q.watched = slices.Delete(q.watched, i, i+1)
	}
	return !st.overdue
}

// setTimer sets a timer for the next statement that stops counting, if keys wait for it.
func (q *Queue) setTimer() {
	if len(q.shared.keys) == 0 && len(q.single.keys) == 0 {
		return
	}
	var first time.Time
	for _, st := range q.watched {
		if !st.overdue && (first.IsZero() || st.due.Before(first)) {
			first = st.due
		}
	}
	if !first.IsZero() && (q.watchEnd.IsZero() || first.Before(q.watchEnd)) {
		q.watchEnd = first
		time.AfterFunc(time.Until(first), q.replaceOverdue)
	}
}

// replaceOverdue starts leaders instead of those whose statements do not count any more.
func (q *Queue) replaceOverdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watchEnd = time.Time{}
	for _, st := range q.watched {
		if st.overdue || time.Now().Before(st.due) {
			continue
		}
		st.overdue = true
		st.line.inFlight--
		if q.first(st.line) != nil && st.line.inFlight < q.maxInFlight(st.line) {
			st.line.inFlight++
			go q.lead(st.line)
		}
	}
	q.setTimer()
}

// rejoin reports whether the leader of a statement that was overdue may send another one.
// Another leader may have taken its place.
func (q *Queue) rejoin(from *line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if from.inFlight >= q.maxInFlight(from) {
		return false
	}
	from.inFlight++
	return true
}
