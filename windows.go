package limiter

import "time"

// maxUsed is the value at which the count of a window saturates.
const maxUsed = 1 << 62

// windows is the algorithm of a [FixedWindow] and of a [CalendarWindow]. It keeps the period of the calendar
// that it computed last.
type windows struct {
	lim      int64
	length   int64 // of each window; 0 if the calendar decides
	counts   bool  // refused requests also count
	calendar CalendarWindow

	from, size int64 // of the period of the calendar
}

// at returns the start and the length of the window that t is in.
func (w *windows) at(t int64) (start, length int64) {
	if w.calendar.Period == 0 {
		return t - t%w.length, w.length
	}
	if t < w.from || t-w.from >= w.size {
		w.from, w.size = w.calendar.at(t)
	}
	return w.from, w.size
}

func (w *windows) apply(op *Op, row *Row, now int64, s *State) {
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
		if row.Start == op.Booked.Row.Start && row.Period == op.Booked.Row.Period && row.Used < maxUsed && now <= op.Act() {
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
		refused := start > s.latest(&probe)
		shorter := s.Row.Used > 0 && w.shortens(row, max(now, row.At))
		if refused && (!w.counts || op.Cost == 0) || shorter {
			w.refuse(&probe, &kept, start, s)
		}
		if refused || shorter {
			*row = kept
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

func (w *windows) take(op *Op, row *Row, now int64, s *State) {
	w.find(op, row, now, s)
	clock := s.clock()
	if w.counts {
		s.Took = s.Row.Start <= clock && s.Row.Used+op.Cost <= w.lim
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
		_, s.Row.Period = w.at(start)
	}
	cost := op.Cost
	if op.Kind == OpTakeUpTo {
		cost = min(cost, w.lim-s.Row.Used)
		s.Taken = cost
	}
	s.Row.Used += cost
	s.Row.At = clock
	s.Took = true
	*row = s.Row
}

// charge counts the cost whatever is left, in the row's window.
func (w *windows) charge(op *Op, row *Row, now int64, s *State) {
	*row = w.anchor(op, *row, now)
	clock := max(now, row.At)
	*row = w.carry(*row, clock)
	s.Took = row.Start <= clock && op.Cost <= w.lim-row.Used
	row.Used += min(op.Cost, maxUsed-row.Used)
	row.At = clock
}

// block makes the window in which the block ends count as full. The highest count marks a block: a
// refund or cancel does not change it.
func (w *windows) block(op *Op, row *Row, now int64, s *State) {
	*row = w.anchor(op, *row, now)
	clock := max(now, row.At)
	*row = w.carry(*row, clock)
	s.Took = true
	if start, length := w.at(now + op.Cost); start > row.Start {
		row.Start, row.Period = start, length
	}
	row.Used, row.At = maxUsed, clock
}

// clock is the time that decides which window is current: the operation's clock, or the row's if
// that is ahead by no more than the tolerance. Durations count from s.Now, because the caller waits
// by the operation's clock.
func (s *State) clock() int64 { return max(s.Now, s.Row.At) }

// latest is the latest start of a window that the take op may use: one that has begun by the row's
// clock, or that begins within MaxWait by the operation's clock.
func (s *State) latest(op *Op) int64 { return max(s.Row.At, s.Now+int64(op.MaxWait)) }

// find sets s.Row to the row that op finds, by this policy.
func (w *windows) find(op *Op, row *Row, now int64, s *State) {
	*row = w.anchor(op, *row, now)
	s.Row = w.carry(*row, max(now, row.At))
}

// refuse sets row to what the store keeps after a refusal; the cost fits into the window that begins at
// start. If windows became shorter, that is the converted row. Otherwise a full day would be a full hour
// until the day ends. If windows became longer, it is not, because two policies in use together would start
// the shorter window anew each time. The request then passes when the row's own window ends, or begins with
// room for it, or when the next window of this policy is within its reach.
func (w *windows) refuse(op *Op, row *Row, start int64, s *State) {
	switch {
	case w.owns(row):
	case w.shortens(row, s.clock()):
		s.Row.At = s.clock()
		*row = s.Row
	default:
		s.Wait = row.Start + row.Period - s.Now
		if row.Used+op.needs() <= w.lim { // so it has not begun
			s.Wait = row.Start - s.Now
		}
		if op.MaxWait > 0 {
			s.Wait = min(s.Wait, start-int64(op.MaxWait)-s.Now)
		}
	}
}

// target is the start of the window that cost goes into: the row's window if cost fits there,
// otherwise the next one.
func (w *windows) target(row Row, cost int64) int64 {
	if row.Used+cost <= w.lim {
		return row.Start
	}
	return row.Start + row.Period
}

// refuses reports whether the take op is refused on a row of this policy that is not ahead of the
// clock.
func (w *windows) refuses(op *Op, row *Row, now int64) bool {
	return w.target(*row, op.needs()) > now+int64(op.MaxWait) // never after the row's window has ended
}

// anchor corrects a row whose clock was stepped back. The count of the window that the clock is in
// now is known only if it is the row's own. Any other window counts as full, so that the step
// grants nothing. A refusal also writes this; otherwise every window of the step would be full. If a turn
// was booked, the window is blocked: the booking may have replaced the mark of a block, which must last.
func (w *windows) anchor(op *Op, row Row, now int64) Row {
	if row.At > now+op.Tolerance(row) {
		ahead := max(0, row.Start-row.At)
		if row.Used == maxUsed { // a block lasts at least as long as it would have
			ahead = max(0, row.Start+row.Period-1-row.At)
		}
		start, length := w.earlierWindow(&row, now+ahead)
		if start < row.Start {
			row.Start, row.Period = start, length
			if ahead > 0 || row.Used == maxUsed {
				row.Used = maxUsed
			} else {
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
func (w *windows) carry(row Row, clock int64) Row {
	current, length := w.at(clock)
	if row.Start != current || row.Period != length {
		if !w.owns(&row) {
			row = w.convert(row, clock, current)
		}
		if row.Start < current {
			row.Start, row.Used = current, 0
		}
		if row.Start > current {
			_, length = w.at(row.Start)
		}
	}
	row.Period, row.Limit = length, w.lim
	return row
}

// owns reports whether the window of row is one of this policy's.
func (w *windows) owns(row *Row) bool {
	start, length := w.at(row.Start)
	return row.Start == start && row.Period == length
}

// shortens reports whether another policy wrote row, with a window longer than the one at clock.
func (w *windows) shortens(row *Row, clock int64) bool {
	_, length := w.at(clock)
	return row.Period > length && !w.owns(row)
}

// earlierWindow returns the window that contains t, by the policy that wrote row. t is earlier than row.At.
// If another calendar wrote the row, its earlier periods are unknown, and a window of the same length is
// used.
func (w *windows) earlierWindow(row *Row, t int64) (start, length int64) {
	if row.Period == 0 || w.length == 0 && w.owns(row) { // there is no row, and the clock is before 1970
		return w.at(t)
	}
	start = t - (t-row.Start)%row.Period
	if start > t {
		start -= row.Period
	}
	return max(0, start), row.Period
}

// convert converts a row to windows of another length or start. If the row's window has not begun, it
// becomes the window of this policy that contains its start. If that one has begun, it is blocked: the row may
// stand for a booking, which may have replaced the mark of a block. A window that is still running keeps its
// count. A block stays a block.
func (w *windows) convert(row Row, clock, current int64) Row {
	switch {
	case row.Start > clock:
		row.Start, _ = w.at(row.Start)
		if row.Start <= clock {
			row.Used = maxUsed
		}
	case row.Start+row.Period <= clock:
		row.Start, row.Used = current, 0
	default:
		row.Start = current
	}
	return row
}

// delay is at most maxWait for a window that has begun by the row's clock, because Allow, which
// waits for nothing, acts at once there. The state of a look may be that of a window over its limit.
func (w *windows) delay(s *State, maxWait int64) int64 {
	start := w.target(s.Row, 0)
	d := max(0, start-s.Now)
	if start <= s.Row.At {
		d = min(d, maxWait)
	}
	return d
}

func (w *windows) result(op *Op, s *State, r *Result) {
	start, used, length, clock := s.Row.Start, s.Row.Used, s.Row.Period, s.clock()
	if start+length <= clock {
		start, length = w.at(clock)
		used = 0
	}
	end := start
	if used > 0 {
		end += length
	}
	ahead := start > clock
	*r = Result{
		Allowed:   s.Took,
		Limit:     w.lim,
		Remaining: max(0, w.lim-used),
		Used:      used,
		Source:    SourceStore,
		Policy:    op.Policy,
		Taken:     op.taken(s),
		takenFrom: op.takenFrom(s),
	}
	r.ResetAfter = time.Duration(ceilTo(max(0, end-s.Now), s.Tick))
	if ahead || used == maxUsed {
		r.Remaining, r.Used = 0, w.lim
	}
	target := w.target(Row{Start: start, Used: used, Period: length}, op.needs())
	if op.Kind == OpLook {
		r.Allowed = target <= s.latest(op)
	}
	if !r.Allowed || target > clock {
		r.retryAfter(op, s, target-s.Now-int64(op.MaxWait))
	}
}
