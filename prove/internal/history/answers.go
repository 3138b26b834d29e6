package history

import "github.com/sqlimit/limiter"

// moment is an instant, and how many steps there were then at the least or the most.
type moment struct {
	at int64
	n  int
}

type moments []moment

// answered checks the calls that changed nothing. Each answer must fit a state that the row had
// during the call. The earliest such state is the last one that any caller knew of before the call
// began. The latest is the one before the first step whose call began after this one ended.
func (k *rowHistory) answered() {
	told, begun := k.moments()
	var ended moments // of those found so far, with the steps that they know of
	for _, c := range k.calls {
		if k.used[c] || c.Outcome == Unknown || c.Outcome == NotApplied || c.granted() {
			continue
		}
		least, most := told.before(c.Began), begun.after(c.Ended, len(k.steps))
		n, ok := k.toldWithin(c, max(least, ended.before(c.Began)), most)
		if !ok {
			k.wrong(c, least, most)
			k.learn(c, least)
			continue
		}
		ended = append(ended, moment{c.Ended, n})
	}
}

// moments returns how many steps there were at the least and at the most, as far as their calls are known.
func (k *rowHistory) moments() (told, begun moments) {
	for i, s := range k.steps {
		if s.call != nil {
			told = append(told, moment{s.call.end(), i + 1})
			begun = append(begun, moment{s.call.Began, i})
		}
	}
	return told, begun
}

// before is how many steps there were at the least at an instant.
func (m moments) before(at int64) (least int) {
	for _, one := range m {
		if one.at < at {
			least = max(least, one.n)
		}
	}
	return least
}

// after is how many steps there were at the most at an instant.
func (m moments) after(at int64, most int) int {
	for _, one := range m {
		if one.at > at {
			most = min(most, one.n)
		}
	}
	return most
}

// learn notes which calls were carried out earlier than this attempt placed them: c's answer is of a state
// of fewer than least steps. So the calls that ended before c began were carried out by then.
func (k *rowHistory) learn(c *Call, least int) {
	for n := least - 1; n >= 0; n-- {
		if _, ok := k.toldWithin(c, n, n); !ok {
			continue
		}
		for _, s := range k.steps[n:least] {
			if s.call != nil && s.call.end() < c.Began {
				k.by[s.call] = n
			}
		}
		return
	}
}

func (k *rowHistory) row(n int) limiter.Row {
	if n == 0 {
		return k.opened
	}
	return k.steps[n-1].new
}

// toldWithin returns the least number of steps, of least to most, after which c is what is told.
func (k *rowHistory) toldWithin(c *Call, least, most int) (int, bool) {
	during := k.offset.during(c)
	for n := least; n <= most; n++ {
		row := k.row(n)
		if next, ok := c.tells(row, during); ok && (next == row || c.looks()) { // a look need not write
			return n, true
		}
	}
	return 0, false
}

// changing reports whether something was given back to the key, or its policy changed.
func (k *rowHistory) changing() bool {
	var policy limiter.Policy
	for _, c := range k.calls {
		if c.changes() || policy != nil && c.Op.Policy != policy {
			return true
		}
		policy = c.Op.Policy
	}
	return false
}

func (k *rowHistory) wrong(c *Call, least, most int) {
	if c.Outcome == Answered && c.forced() {
		k.fault(Lost, "%+v", *c)
		return
	}
	if c.Outcome == Answered && c.takes() {
		if _, s := c.Op.Apply(c.State.Row, c.State.Now); s.Took {
			k.fault(Answer, "refused where there is room: %+v", *c)
			return
		}
	}
	k.fault(Answer, "when there were %d to %d of %d steps, from %+v to %+v: %+v", least, most, len(k.steps), k.row(least), k.row(most), *c)
}
