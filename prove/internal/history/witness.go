package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sqlimit/limiter"
)

// Check checks a history by the changes of its rows. Calls must explain each change of a row, and one
// change each call that changed a row according to its answer. The order of the changes must not
// contradict the times of the calls. All other answers must fit a state that the row had at the time.
// It takes n log n steps, and more only if many calls were in flight together.
func Check(h *History) *Report {
	r := &Report{Operations: int64(len(h.Calls))}
	offset := offsetOf(h)
	if offset.least > offset.most+slack {
		r.fault(Answer, Key{}, "the store's clock was %d to %d ns ahead: it was set, or not every answer was made during its call", offset.least, offset.most)
	}
	keys := byKey(h)
	for _, key := range slices.SortedFunc(maps.Keys(keys), compareKeys) {
		k := keys[key]
		k.report, k.offset = r, offset
		k.check()
	}
	return r
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

type rowHistory struct {
	key          Key
	calls        []*Call
	transitions  []Transition
	opened, left limiter.Row

	report  *Report
	offset  offset
	attempt int

	steps    []step
	used     map[*Call]bool          // what explains a step
	told     map[limiter.Row][]*Call // calls, by the row that they were told
	writers  map[int64][]*Call       // that may write, by the clock reading of the row that they were told
	clock    map[*Call]int64         // what it read for those of unknown outcome, by what they wrote
	doubtful bool                    // there are calls of unknown outcome
	by       map[*Call]int           // by how many steps a call was carried out, as earlier attempts have found
}

// step is a transition, or a take of several in one.
type step struct {
	old, new limiter.Row
	call     *Call // that explains it
	swept    bool
}

func byKey(h *History) map[Key]*rowHistory {
	keys := map[Key]*rowHistory{}
	of := func(key Key) *rowHistory {
		k := keys[key]
		if k == nil {
			k = &rowHistory{key: key, opened: h.Opened[key], left: h.Left[key], by: map[*Call]int{}}
			keys[key] = k
		}
		return k
	}
	for i := range h.Calls {
		k := of(KeyOf(&h.Calls[i].Op))
		k.calls = append(k.calls, &h.Calls[i])
	}
	for _, t := range h.Transitions {
		k := of(t.Key)
		k.transitions = append(k.transitions, t)
	}
	for _, rows := range []map[Key]limiter.Row{h.Left, h.Opened} {
		for key := range rows {
			of(key)
		}
	}
	return keys
}

func (k *rowHistory) fault(kind Kind, format string, args ...any) {
	k.report.fault(kind, k.key, format, args...)
}

// attempts is how often the witness looks for other calls that may have made a change of which no answer tells.
const attempts = 100

// check finds fault with the history, unless there is an explanation without any.
func (k *rowHistory) check() {
	slices.SortStableFunc(k.calls, func(a, b *Call) int { return cmp.Compare(a.Began, b.Began) })
	report, first := k.report, (*Report)(nil)
	for k.attempt = range attempts {
		k.report = new(Report)
		k.explain()
		if len(k.report.Faults) == 0 {
			break
		}
		first = cmp.Or(first, k.report)
		if !k.doubtful && !k.changing() {
			break
		}
	}
	if len(k.report.Faults) > 0 {
		k.report = first
	}
	report.add(k.report)
}

// explain explains each change by a call, and then each call by the changes.
func (k *rowHistory) explain() {
	k.steps = nil
	k.used, k.told = map[*Call]bool{}, map[limiter.Row][]*Call{}
	k.writers = map[int64][]*Call{}
	k.clock = map[*Call]int64{}
	for _, c := range k.calls {
		if c.Outcome == Unknown {
			k.report.Unknown++
			k.doubtful = true
		}
		// All resets leave the same row: which of them made a change it does not tell.
		if c.Outcome == Answered && c.changes() && c.Op.Kind != limiter.OpReset && c.State.Took && c.State.Row != (limiter.Row{}) {
			k.told[c.State.Row] = append(k.told[c.State.Row], c)
		}
		if c.Outcome == Answered && c.writes() {
			k.told[c.State.Row] = append(k.told[c.State.Row], c)
			k.writers[c.State.Row.At] = append(k.writers[c.State.Row.At], c)
		}
	}
	k.chained()
	for _, t := range k.transitions {
		k.split(t)
	}
	k.match()
	k.explained()
	k.inTime()
	k.answered()
	k.bounded()
	k.blocked()
}

// chained checks that each change begins where the one before it ended.
func (k *rowHistory) chained() {
	row := k.opened
	for i, t := range k.transitions {
		if t.Old != row {
			k.fault(Chain, "before change %d of %d the row is\n     %+v\nwant %+v", i+1, len(k.transitions), t.Old, row)
		}
		row = t.New
	}
	if row != k.left {
		k.fault(Chain, "after %d changes the row is\n     %+v\nwant %+v", len(k.transitions), k.left, row)
	}
}

// explained finds fault with steps that no call explains, and with grants that no step has.
func (k *rowHistory) explained() {
	for i := range k.steps {
		s := &k.steps[i]
		switch {
		case s.swept:
			if now := k.latest(); !s.old.Expired(now) {
				k.fault(Swept, "at %d\n%+v", now, s.old)
			}
		case s.call == nil:
			k.unexplained(i, s)
		case s.call.takes() && (s.call.State.Took || s.call.Outcome == Unknown):
			k.report.Charged++
		}
	}
	for _, c := range k.calls {
		if c.Outcome == Answered && c.granted() && !k.used[c] {
			k.fault(Lost, "%+v", *c)
		}
	}
}

// latest is what the store's clock read at the latest.
func (k *rowHistory) latest() int64 {
	if k.offset.least == math.MinInt64 || k.offset.least > k.offset.most+slack || len(k.calls) == 0 {
		return 1<<61 - 1
	}
	var ended int64
	for _, c := range k.calls {
		ended = max(ended, c.Ended)
	}
	// The sweep may have come after the last call, but not by much.
	const minute = 60_000_000_000
	return k.offset.most + ended + minute
}

// unexplained says what is wrong with a step that no call explains.
func (k *rowHistory) unexplained(i int, s *step) {
	for _, c := range k.told[s.new] {
		if k.used[c] || !c.granted() && !c.forced() {
			continue
		}
		k.used[c] = true
		next, want := c.apply(s.old, c.State.Now)
		if c.takes() && (!want.Took || c.State.Taken > want.Taken) {
			k.fault(Over, "step %d of %d: %+v\n found %+v", i+1, len(k.steps), *c, s.old)
		} else {
			k.fault(Answer, "step %d of %d: %+v\n found %+v\n so that it should have left %+v", i+1, len(k.steps), *c, s.old, next)
		}
		return
	}
	kind := Double
	less := s.new.Used < s.old.Used || s.new.List < s.old.List // the first sum that differs is lower
	if s.new.FullAt < s.old.FullAt || s.new.Start < s.old.Start || s.new.Start == s.old.Start && less || s.new == s.old {
		kind = Given
	}
	k.fault(kind, "step %d of %d makes of\n     %+v\n     %+v%s", i+1, len(k.steps), s.old, s.new, k.unanswered(s))
}

// unanswered lists the calls without an answer that explain nothing and may have been under way at a step.
func (k *rowHistory) unanswered(s *step) (text string) {
	for _, c := range k.fitting(math.MaxInt64, func(c *Call) bool { return c.Outcome != Answered }) {
		if during := k.offset.during(c); c.changes() || during.from <= s.new.At && s.new.At <= during.to {
			text += fmt.Sprintf("\n     unanswered: %+v", *c)
		}
	}
	return text
}

// inTime checks that no call had ended before one began that comes before it.
func (k *rowHistory) inTime() {
	began := int64(math.MinInt64)
	for i, s := range k.steps {
		if s.call == nil {
			continue
		}
		if s.call.end() < began {
			k.fault(Order, "step %d of %d was told %d ns before a call began that the row has before it: %+v", i+1, len(k.steps), began-s.call.Ended, *s.call)
			return // those after it say the same
		}
		began = max(began, s.call.Began)
	}
}
