package limiter

import (
	"fmt"
	"time"
)

// FixedWindow is a policy that allows at most Limit requests per Window. Windows are aligned to
// 1970-01-01T00:00:00Z, so that all callers share their edges. Around an edge, up to twice Limit can
// pass within an instant: half at the end of one window, half at the start of the next. A
// [TokenBucket] never admits more than its capacity at once.
//
// With CountRejected, refused requests also count. A client that keeps asking then stays refused
// until the window ends, and [Result].Used is the total of its requests. Every request then writes,
// and [Limiter.Reserve] and [Limiter.Wait] fail with [errors.ErrUnsupported].
//
// The zero FixedWindow is not valid.
type FixedWindow struct {
	Limit         int64         // the cost that passes per Window: 1 to 2^60
	Window        time.Duration // 1 ms to 30 years
	CountRejected bool          // refused requests also count
}

// maxUsed is the value at which the count of a window saturates.
const maxUsed = 1 << 62

// String returns the policy as text, such as "100 per 1h0m0s window".
func (w FixedWindow) String() string {
	text := fmt.Sprintf("%d per %v window", w.Limit, w.Window)
	if w.CountRejected {
		text += ", counting refusals"
	}
	return text
}

func (w FixedWindow) check() error {
	if w.Limit < 1 || w.Limit > maxLimit {
		return invalid("FixedWindow.Limit is %d; it must be 1 to 2^60", w.Limit)
	}
	return checkSpan("FixedWindow.Window", w.Window, minWindow)
}

func (w FixedWindow) limit() int64 { return w.Limit }

func (w FixedWindow) apply(op *Op, row *Row, now int64, s *State) {
	switch op.Kind {
	case OpTake, OpTakeUpTo:
		w.take(op, row, now, s)
		return
	case OpCharge:
		w.charge(op, row, now, s)
	case OpBlock:
		w.block(op, row, now, s)
	case OpRefund:
		// The row's own window: it may have been counted under another policy.
		clock := max(now, row.At)
		if row.Used > 0 && row.Used < maxUsed && row.Start <= clock && row.Start+row.Period > clock && op.credits(row) {
			row.Used = max(0, row.Used-op.Cost)
			s.Took = true
		}
	case OpCancel:
		if row.Start == op.Booked.Row.Start && row.Period == int64(w.Window) && row.Used < maxUsed && now <= op.Act() {
			row.Used = max(0, row.Used-op.Cost)
			s.Took = true
		}
	case OpReset:
		s.Took = row.Period != 0
		row.Start, row.Used, row.At = 0, 0, 0
	default: // OpLook
		probe, kept := op.probe(), *row
		w.find(&probe, &kept, now, s)
		start := w.target(s.Row, probe.needs())
		refused := start > s.latest(&probe) && !w.CountRejected
		if refused || row.Period > int64(w.Window) && s.Row.Used > 0 {
			w.refuse(&probe, &kept, start, s)
			keepConverted(row, &kept)
		}
		return
	}
	s.Row = *row
}

// credits reports whether the refund op may credit the window of row.
func (op *Op) credits(row *Row) bool {
	from := &op.Booked.Row
	return from.Period == 0 || from.Start == row.Start && from.Period == row.Period
}

func (w FixedWindow) take(op *Op, row *Row, now int64, s *State) {
	w.find(op, row, now, s)
	clock := s.clock()
	if w.CountRejected {
		s.Took = s.Row.Start <= clock && s.Row.Used+op.Cost <= w.Limit
		if s.Row.Start <= clock { // a window ahead counts nothing before it comes
			s.Row.Used = min(s.Row.Used+op.Cost, maxUsed)
		}
		s.Row.At = clock
		*row = s.Row
		return
	}
	start := w.target(s.Row, op.needs())
	if start > s.latest(op) {
		w.refuse(op, row, start, s)
		return
	}
	if start != s.Row.Start {
		s.Row.Start, s.Row.Used = start, 0
	}
	cost := op.Cost
	if op.Kind == OpTakeUpTo {
		cost = min(cost, w.Limit-s.Row.Used)
		s.Taken = cost
	}
	s.Row.Used += cost
	s.Row.At = clock
	s.Took = true
	*row = s.Row
}

// charge counts the cost whatever is left, in the row's window.
func (w FixedWindow) charge(op *Op, row *Row, now int64, s *State) {
	*row = w.anchor(op, *row, now)
	clock := max(now, row.At)
	*row = w.carry(*row, clock)
	s.Took = row.Start <= clock && op.Cost <= w.Limit-row.Used
	row.Used += min(op.Cost, maxUsed-row.Used)
	row.At = clock
}

// block makes the window in which the block ends count as full. The highest count marks a block: a
// refund or cancel does not change it.
func (w FixedWindow) block(op *Op, row *Row, now int64, s *State) {
	*row = w.anchor(op, *row, now)
	clock := max(now, row.At)
	*row = w.carry(*row, clock)
	s.Took = true
	row.Start, row.Used = max(row.Start, align(now+op.Cost, int64(w.Window))), maxUsed
	row.At = clock
}

// clock is the time that decides which window is current: the operation's clock, or the row's if
// that is ahead by no more than the tolerance. Durations count from s.Now, because the caller waits
// by the operation's clock.
func (s *State) clock() int64 { return max(s.Now, s.Row.At) }

// latest is the latest start of a window that the take op may use: one that has begun by the row's
// clock, or that begins within MaxWait by the operation's clock.
func (s *State) latest(op *Op) int64 { return max(s.Row.At, s.Now+int64(op.MaxWait)) }

// find sets s.Row to the row that op finds, by this policy.
func (w FixedWindow) find(op *Op, row *Row, now int64, s *State) {
	*row = w.anchor(op, *row, now)
	s.Row = w.carry(*row, max(now, row.At))
}

// refuse sets row to what the store keeps after a refusal; the cost fits into the window that begins at
// start. If windows became shorter, that is the converted row. Otherwise a full day would be a full hour
// until the day ends. If windows became longer, it is not, because two policies in use together would start
// the shorter window anew each time. The request then passes when the row's own window ends, or when the
// next window of this policy is within its reach.
func (w FixedWindow) refuse(op *Op, row *Row, start int64, s *State) {
	switch {
	case row.Period == int64(w.Window):
	case row.Period > int64(w.Window):
		s.Row.At = s.clock()
		*row = s.Row
	default:
		s.Wait = row.Start + row.Period - s.Now
		if op.MaxWait > 0 {
			s.Wait = min(s.Wait, start-int64(op.MaxWait)-s.Now)
		}
	}
}

// target is the start of the window that cost goes into: the row's window if cost fits there,
// otherwise the next one.
func (w FixedWindow) target(row Row, cost int64) int64 {
	if row.Used+cost <= w.Limit {
		return row.Start
	}
	return row.Start + int64(w.Window)
}

// refuses reports whether the take op is refused on a row of this policy that is not ahead of the
// clock.
func (w FixedWindow) refuses(op *Op, row *Row, now int64) bool {
	return row.Start >= align(now, int64(w.Window)) && w.target(*row, op.needs()) > now+int64(op.MaxWait)
}

// anchor corrects a row whose clock was stepped back. The count of the window that the clock is in
// now is known only if it is the row's own. Any other window counts as full, so that the step
// grants nothing. A refusal also writes this; otherwise every window of the step would be full.
func (w FixedWindow) anchor(op *Op, row Row, now int64) Row {
	if row.At > now+op.Tolerance(row) {
		ahead := max(0, row.Start-row.At)
		if row.Used == maxUsed { // a block lasts at least as long as it would have
			ahead = max(0, row.Start+row.Period-1-row.At)
		}
		start := align(now+ahead, row.Period)
		if start < row.Start {
			row.Start = start
			if row.Used < maxUsed { // a block stays
				row.Used = row.Limit
			}
		}
		row.At = now
	}
	return row
}

// carry converts row to this policy and moves it to the current window if it is behind. If the
// operation's clock is a little behind the row's, clock is the row's. A statement that read its
// clock before the edge of a window and reached the row after it must neither reopen the old window
// nor count twice.
func (w FixedWindow) carry(row Row, clock int64) Row {
	current := align(clock, int64(w.Window))
	if row.Period != int64(w.Window) {
		row = w.convert(row, clock, current)
	}
	if row.Start < current {
		row.Start, row.Used = current, 0
	}
	row.Period, row.Limit = int64(w.Window), w.Limit
	return row
}

// convert converts a row to windows of another length. A window ahead becomes the window that its
// start is in, and that is full if it is not ahead. A window that is still running keeps its count.
// A block stays a block.
func (w FixedWindow) convert(row Row, clock, current int64) Row {
	switch {
	case row.Start > clock:
		row.Start = align(row.Start, int64(w.Window))
		if row.Start <= clock && row.Used < maxUsed {
			row.Used = w.Limit
		}
	case row.Start+row.Period <= clock:
		row.Start, row.Used = current, 0
	default:
		row.Start = current
	}
	return row
}

func align(t, window int64) int64 { return t - t%window }

// delay is at most maxWait for a window that has begun by the row's clock, because Allow, which
// waits for nothing, acts at once there. The state of a look may be that of a window over its limit.
func (w FixedWindow) delay(s *State, maxWait int64) int64 {
	start := w.target(s.Row, 0)
	d := max(0, start-s.Now)
	if start <= s.Row.At {
		d = min(d, maxWait)
	}
	return d
}

func (w FixedWindow) result(op *Op, s *State, r *Result) {
	start, used, clock := s.Row.Start, s.Row.Used, s.clock()
	if current := align(clock, int64(w.Window)); start < current {
		start, used = current, 0
	}
	end := start
	if used > 0 {
		end += int64(w.Window)
	}
	ahead := start > clock
	*r = Result{
		Allowed:   s.Took,
		Limit:     w.Limit,
		Remaining: max(0, w.Limit-used),
		Used:      used,
		Source:    SourceStore,
		Policy:    op.Policy,
		Taken:     op.taken(s),
		takenFrom: op.takenFrom(s),
	}
	r.ResetAfter = time.Duration(ceilTo(max(0, end-s.Now), s.Tick))
	if ahead || used == maxUsed {
		r.Remaining, r.Used = 0, w.Limit
	}
	target := w.target(Row{Start: start, Used: used}, op.needs())
	if op.Kind == OpLook {
		r.Allowed = target <= s.latest(op)
	}
	if !r.Allowed || target > clock {
		r.retryAfter(op, s, target-s.Now-int64(op.MaxWait))
	}
}
