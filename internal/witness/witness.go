// Package witness checks what a store answered to concurrent callers of one key. It verifies that
// there is an order in which [limiter.Op.Apply], one operation after another, gives the same
// answers. It also verifies that no answer reflects an operation that began after that answer.
// The tests of package postgres call it.
//
// The order is that of the row. A granted take moves a bucket's FullAt, or a window's Start and
// Used, forward. So the answers themselves show the order of the grants, and no store must be
// changed for the check.
package witness

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/sqlimit/limiter"
)

// Call is one operation and its answer.
type Call struct {
	Op    limiter.Op
	State limiter.State
	// Began and Ended enclose the operation, by a clock that all callers share.
	Began, Ended int64
}

// granted reports whether the call is a granted take.
func (c Call) granted() bool { return c.Op.Kind == limiter.OpTake && c.State.Took }

// Check returns what is wrong with calls: takes without MaxWait, and looks, of one key under one
// policy since it was unused, in any order. left is the row in the end. Check takes n log n steps,
// and more only where many calls were in flight at the same time.
func Check(calls []Call, left limiter.Row) error {
	h := newHistory(calls)
	return errors.Join(h.replay(left), h.inTime(), h.bounded(), h.answered())
}

// history is the calls of a key: the grants in the order of the row, and the others.
type history struct {
	grants, others []Call
}

func newHistory(calls []Call) *history {
	h := new(history)
	for _, c := range calls {
		if c.granted() {
			h.grants = append(h.grants, c)
		} else {
			h.others = append(h.others, c)
		}
	}
	slices.SortStableFunc(h.grants, func(a, b Call) int {
		x, y := a.State.Row, b.State.Row
		return cmp.Or(cmp.Compare(x.FullAt, y.FullAt), cmp.Compare(x.Start, y.Start), cmp.Compare(x.Used, y.Used))
	})
	return h
}

// row is what n grants leave.
func (h *history) row(n int) limiter.Row {
	if n == 0 {
		return limiter.Row{}
	}
	return h.grants[n-1].State.Row
}

// apply is what the operation of c tells of row, by the clock that it went by.
func (c Call) apply(row limiter.Row) (limiter.Row, limiter.State) {
	next, s := c.Op.Apply(row, c.State.Now)
	s.Tick = c.State.Tick
	return next, s
}

// replay carries the grants out one after another. One too many, one too few, or one
// that was told to two callers leaves the next without the state that it found.
func (h *history) replay(left limiter.Row) error {
	var row limiter.Row
	for i, g := range h.grants {
		next, want := g.apply(row)
		if g.State != want {
			return fmt.Errorf("replay: grant %d of %d, for %d on\n     %+v\n is %+v\nwant %+v", i+1, len(h.grants), g.Op.Cost, row, g.State, want)
		}
		row = next
	}
	if row != left {
		return fmt.Errorf("replay: %d grants leave\n     %+v\n but %+v is there", len(h.grants), row, left)
	}
	return nil
}

// inTime checks that no grant ended before an earlier one in the row's order began.
func (h *history) inTime() error {
	var began int64
	for i, g := range h.grants {
		if g.Ended < began {
			return fmt.Errorf("order: grant %d of %d was told %d ns before one began that the row had before it", i+1, len(h.grants), began-g.Ended)
		}
		began = max(began, g.Began)
	}
	return nil
}

// answered checks the refusals and looks. The earliest state that fits is after the last grant that
// was answered before the call began. The latest is before the first grant that began after the
// call ended. The answer must fit one of these states.
func (h *history) answered() error {
	// How many grants there are at least once one has been told, and at most before one
	// begins.
	told := byTime(h.grants, func(i int) (int64, int) { return h.grants[i].Ended, i + 1 })
	for i := 1; i < len(told); i++ {
		told[i].n = max(told[i].n, told[i-1].n)
	}
	begun := byTime(h.grants, func(i int) (int64, int) { return h.grants[i].Began, i })
	for i := len(begun) - 2; i >= 0; i-- {
		begun[i].n = min(begun[i].n, begun[i+1].n)
	}
	for _, c := range h.others {
		least, most := 0, len(h.grants)
		if i := sort.Search(len(told), func(i int) bool { return told[i].at >= c.Began }); i > 0 {
			least = told[i-1].n
		}
		if i := sort.Search(len(begun), func(i int) bool { return begun[i].at > c.Ended }); i < len(begun) {
			most = begun[i].n
		}
		if err := h.told(c, least, most); err != nil {
			return err
		}
	}
	return nil
}

// told returns an error unless c is the answer for some number of grants from least to most.
func (h *history) told(c Call, least, most int) error {
	for n := least; n <= most; n++ {
		if _, want := c.apply(h.row(n)); want == c.State {
			return nil
		}
	}
	if _, s := c.apply(c.State.Row); c.Op.Kind == limiter.OpTake && s.Took {
		return fmt.Errorf("answer: %d were refused by a state in which there is room for them: %+v", c.Op.Cost, c.State)
	}
	return fmt.Errorf("answer: to operation %d for %d, when there were %d to %d of %d grants, is of none of their states: %+v",
		c.Op.Kind, c.Op.Cost, least, most, len(h.grants), c.State)
}

// moment is an instant, and a number that belongs to it.
type moment struct {
	at int64
	n  int
}

// byTime returns the moments of grants, the earliest first.
func byTime(grants []Call, of func(i int) (at int64, n int)) []moment {
	moments := make([]moment, len(grants))
	for i := range grants {
		moments[i].at, moments[i].n = of(i)
	}
	slices.SortFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return moments
}
