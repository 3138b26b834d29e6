package history

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// changer finds the refunds, cancels and resets that made steps. Their answers hold no state, so one
// may be mistaken for another of the same amount. The mistake shows when the other call has no step
// left, or had ended by then. So the search has to backtrack.
type changer struct {
	*rowHistory
	open  []int     // the steps, in order
	fit   [][]*Call // of each the calls that can make it, the best first
	must  []*Call   // those that are not explained otherwise, by when they ended
	made  map[*Call]bool
	chose []*Call
	tries int
}

// mostTries is how often a changer tries a call for a step.
const mostTries = 200_000

// change finds the calls of open steps, and returns the steps that are left.
func (k *rowHistory) change(open []int) (rest []int) {
	f := &changer{rowHistory: k, made: map[*Call]bool{}}
	f.find(open)
	f.chose = make([]*Call, len(f.open))
	if !f.choose(0, math.MinInt64) {
		f.greedy()
	}
	for n, c := range f.chose {
		if c == nil {
			continue
		}
		if k.take(f.open[n], c); c.Outcome == Unknown {
			k.report.Applied++
		}
	}
	return slices.DeleteFunc(slices.Clone(open), func(i int) bool { return k.steps[i].call != nil })
}

// find finds the calls that can make each step: in time between the latest beginning of
// those before it and the earliest end of those after it.
func (f *changer) find(open []int) {
	var calls []*Call
	of := map[*Call]span{}
	for _, c := range f.calls {
		if !f.used[c] && c.changes() && (c.Outcome == Unknown || c.Outcome == Answered && c.State.Took) {
			calls = append(calls, c)
			of[c] = f.offset.during(c)
		}
	}
	idle, due := f.idle(calls, of), f.due(calls)
	for _, c := range calls {
		if !idle[c] {
			f.must = append(f.must, c)
		}
	}
	slices.SortStableFunc(f.must, func(a, b *Call) int { return cmp.Compare(a.Ended, b.Ended) })
	began, ended := f.between()
	f.read(began, ended)
	for _, i := range open {
		var fit []*Call
		for _, c := range calls {
			if c.Began > ended[i] {
				break
			}
			if c.end() >= began[i] && f.makes(c, &f.steps[i], of[c]) {
				fit = append(fit, c)
			}
		}
		if len(fit) == 0 {
			continue
		}
		slices.SortStableFunc(fit, func(a, b *Call) int {
			if idle[a] != idle[b] && f.attempt%2 == 0 {
				if idle[b] {
					return -1
				}
				return 1
			}
			return cmp.Compare(due[a], due[b])
		})
		f.open, f.fit = append(f.open, i), append(f.fit, fit)
	}
}

// read uses the calls that changed nothing to bound the times of each step's call. If a step comes
// before every row that such a call can have read, its call began before the read ended. If it comes
// after all of them, its call ended after the read began.
func (f *changer) read(began, ended []int64) {
	told, begun := f.moments()
	from, to := make([]int64, len(f.steps)+1), make([]int64, len(f.steps)+1) // by the number of steps
	for n := range from {
		from[n], to[n] = math.MinInt64, math.MaxInt64
	}
	for _, c := range f.calls {
		if f.used[c] || c.Outcome != Answered || c.changes() || c.granted() {
			continue
		}
		least, most := told.before(c.Began), begun.after(c.Ended, len(f.steps))
		first, ok := f.toldWithin(c, least, most)
		if !ok || f.lostRace(c, least, most) { // then it may have been told of another one
			continue
		}
		last := most
		for _, ok := f.toldWithin(c, last, last); !ok; _, ok = f.toldWithin(c, last, last) {
			last--
		}
		to[first] = min(to[first], c.Ended)
		from[last] = max(from[last], c.Began)
	}
	for i := range f.steps { // the step that makes i of them i+1
		from[i+1] = max(from[i+1], from[i])
		began[i] = max(began[i], from[i])
	}
	for i := len(f.steps) - 1; i >= 0; i-- {
		ended[i] = min(ended[i], to[i+1])
		to[i] = min(to[i], to[i+1])
	}
}

// due is by when a call is to be chosen: at first by when it ended, as then fewest are late.
// But a look may contradict that, and then some have their turn at any time, now few of them
// and now many.
func (f *changer) due(calls []*Call) map[*Call]int64 {
	due := make(map[*Call]int64, len(calls))
	var latest int64
	for _, c := range calls {
		latest = max(latest, c.Ended)
	}
	r := rand.New(rand.NewPCG(uint64(f.attempt), 0))
	for _, c := range calls {
		if due[c] = min(c.end(), latest+1); f.attempt > 0 && r.IntN(2<<(f.attempt%6)) == 0 {
			due[c] = r.Int64N(2*latest + 2) // for each before all others, and after them
		}
	}
	return due
}

// idle returns the calls that need no step: they are explained by a row which they leave as
// it was, or perhaps were not applied.
func (f *changer) idle(calls []*Call, of map[*Call]span) map[*Call]bool {
	idle := map[*Call]bool{}
	told, begun := f.moments()
	for _, c := range calls {
		idle[c] = c.Outcome == Unknown
		for n := told.before(c.Began); n <= begun.after(c.Ended, len(f.steps)) && !idle[c]; n++ {
			next, ok := c.tells(f.row(n), of[c])
			idle[c] = ok && next == f.row(n)
		}
	}
	return idle
}

// choose chooses calls for the steps from the n-th on, if those before it have calls of
// which the latest began then, and reports whether all have one and no call is left over.
func (f *changer) choose(n int, began int64) bool {
	if n == len(f.open) {
		return f.late(math.MaxInt64) == nil
	}
	for _, c := range f.fit[n] {
		if f.made[c] || c.end() < began {
			continue
		}
		if f.tries++; f.tries > mostTries {
			return false
		}
		f.made[c] = true
		f.chose[n] = c
		latest := max(began, c.Began)
		if f.late(latest) == nil && f.choose(n+1, latest) {
			return true
		}
		f.made[c] = false
	}
	return false
}

// late returns a call that was over before an instant and has no step.
func (f *changer) late(at int64) *Call {
	for _, c := range f.must {
		if c.Ended >= at {
			break
		}
		if !f.made[c] {
			return c
		}
	}
	return nil
}

// greedy chooses the best call for each step, and none if there is none left: something is
// wrong, and this shows it.
func (f *changer) greedy() {
	clear(f.made)
	clear(f.chose)
	for n, fit := range f.fit {
		for _, c := range fit {
			if !f.made[c] {
				f.made[c] = true
				f.chose[n] = c
				break
			}
		}
	}
}
