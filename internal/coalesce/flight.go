package coalesce

import (
	"sync"
	"time"
)

// flight is the rows of one statement. It is used again: rows are the larger part of
// what a take would allocate.
type flight struct {
	rows []*Row

	line    *line     // in which it is counted
	due     time.Time // until when, if it is watched
	stalled bool      // it is counted no more
}

var flights = sync.Pool{New: func() any { return new(flight) }}

// row returns one row more, with what it held before.
func (f *flight) row() *Row {
	if n := len(f.rows); n < cap(f.rows) {
		f.rows = f.rows[:n+1]
		if r := f.rows[n]; r != nil {
			return r
		}
		f.rows = f.rows[:n]
	}
	r := new(Row)
	f.rows = append(f.rows, r)
	return r
}

// clear forgets the calls, and keeps the room for others.
func (f *flight) clear() {
	for _, r := range f.rows {
		calls := r.calls
		clear(calls)
		*r = Row{calls: calls[:0]}
	}
	*f = flight{rows: f.rows[:0]}
}
