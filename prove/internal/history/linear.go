package history

import (
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sqlimit/limiter"
)

// Linear has porcupine look for an order of each key's calls in which [limiter.Op.Apply]
// tells them what they were told. Refusals from memory of keys to which something was given
// back, or whose policy changed, are left out: they may tell of the past. So are requests
// that lost a race.
//
// An order of a thousand calls, of which a hundred were under way at a time, is not found by
// chance. So porcupine is led: it tries first what the witness thinks is next. What it
// accepts has an order that nobody can contradict, wherever the hint came from. If it is led
// astray it has the given time to look for another; a key that it does not get done with is
// a fault. What it finds wrong it draws in a file in dir.
func Linear(h *History, timeout time.Duration, dir string) *Report {
	r := &Report{}
	offset, keys := offsetOf(h), byKey(h)
	for _, key := range slices.SortedFunc(maps.Keys(keys), compareKeys) {
		k := keys[key]
		k.report, k.offset, k.denyAge = new(Report), offset, h.DenyAge
		k.check()
		m := &model{offset: offset, opened: k.opened}
		operations := m.operations(k)
		r.Operations += int64(len(operations))
		if len(operations) == 0 || m.led(k, operations, timeout) {
			continue
		}
		model := m.alone()
		switch porcupine.CheckOperationsTimeout(model, operations, timeout) {
		case porcupine.Unknown:
			r.fault(NoDecision, key, "%d calls in %v", len(operations), timeout)
		case porcupine.Illegal:
			r.fault(NotLinear, key, "of %d; see %s", len(operations), draw(model, operations, timeout, dir))
		case porcupine.Ok:
		}
	}
	return r
}

// model is one key for porcupine. Its state is a row.
type model struct {
	offset   offset
	opened   limiter.Row
	doubtful bool
}

// told is the input of an operation, with its output in it.
type told struct {
	*Call
	during span
	read   int64 // what the clock read, if the answer does not tell
}

// operations are the calls of a key for porcupine.
func (m *model) operations(k *rowHistory) (operations []porcupine.Operation) {
	changed := k.changing()
	for _, c := range k.calls {
		switch c.Outcome {
		case NotApplied:
			continue
		case DenyCache:
			if changed {
				continue
			}
		case Unknown:
			if c.Op.Kind == limiter.OpLook || !k.used[c] {
				continue // nothing can be seen of it: it was not applied, or nobody asked any more
			}
			m.doubtful = true
		case Answered:
			if k.races[c] {
				continue
			}
		}
		operations = append(operations, porcupine.Operation{
			ClientId: len(operations) % clients, Input: told{c, m.offset.during(c), k.clock[c]}, Call: c.Began, Return: c.end(),
		})
	}
	return operations
}

// clients is how many lines a drawing has.
const clients = 64

// step returns the rows that an operation can leave that finds row.
func (m *model) step(row limiter.Row, c told) []limiter.Row {
	rows := m.stepOn(row, c)
	// What has expired may be forgotten at any time.
	if len(rows) == 0 && row.Expired(c.during.to) {
		rows = m.stepOn(limiter.Row{}, c)
	}
	return rows
}

func (m *model) stepOn(row limiter.Row, c told) []limiter.Row {
	if c.Outcome != Unknown {
		if next, ok := c.tells(row, c.during); ok {
			return []limiter.Row{next}
		}
		return nil
	}
	if !c.changes() {
		next, _ := c.Op.Apply(row, c.read)
		return distinct(row, next)
	}
	answered := *c.Call
	answered.State.Took = true
	if next, ok := answered.tells(row, c.during); ok {
		return distinct(row, next)
	}
	return []limiter.Row{row}
}

// distinct are the rows of an operation that was not applied, or was.
func distinct(row, next limiter.Row) []limiter.Row {
	if row == next {
		return []limiter.Row{row}
	}
	return []limiter.Row{row, next}
}

var seed = maphash.MakeSeed()

// alone is the model for porcupine without a hint. If there are calls whose outcome is not
// known, each row may be one of several.
func (m *model) alone() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.opened} },
		Step: func(state, input, _ any) (next []any) {
			for _, row := range m.step(state.(limiter.Row), input.(told)) {
				next = append(next, row)
			}
			return next
		},
		Equal:             func(a, b any) bool { return a == b },
		Hash:              func(state any) uint64 { return maphash.Comparable(seed, state.(limiter.Row)) },
		DescribeOperation: func(input, _ any) string { return input.(told).String() },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return model.ToModel()
}

// place is a row, and how many calls led to it.
type place struct {
	limiter.Row
	n int
}

// led reports whether porcupine accepts the order of the witness.
func (m *model) led(k *rowHistory, operations []porcupine.Operation, timeout time.Duration) bool {
	included := make(map[*Call]bool, len(operations))
	for _, o := range operations {
		included[o.Input.(told).Call] = true
	}
	next := make(map[*Call]int, len(operations))
	for _, c := range k.order() {
		if included[c] {
			next[c] = len(next)
		}
	}
	if len(next) != len(operations) {
		return false
	}
	model := porcupine.Model{
		Init: func() any { return place{m.opened, 0} },
		Step: func(state, input, _ any) (bool, any) {
			at, c := state.(place), input.(told)
			if next[c.Call] != at.n {
				return false, state
			}
			rows := m.step(at.Row, c)
			if len(rows) == 0 {
				return false, state
			}
			return true, place{rows[len(rows)-1], at.n + 1} // the last is the one that it was applied to
		},
		Equal: func(a, b any) bool { return a == b },
		Hash:  func(state any) uint64 { return maphash.Comparable(seed, state.(place)) },
	}
	return porcupine.CheckOperationsTimeout(model, operations, timeout) == porcupine.Ok
}

// draw writes what porcupine found to a file, and returns its name.
func draw(model porcupine.Model, operations []porcupine.Operation, timeout time.Duration, dir string) string {
	_, info := porcupine.CheckOperationsVerbose(model, operations, timeout)
	file, err := os.CreateTemp(dir, "history-*.html")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if err := porcupine.Visualize(model, info, file); err != nil {
		return err.Error()
	}
	return file.Name()
}
