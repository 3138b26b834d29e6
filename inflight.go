package limiter

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// InFlight is how many requests of a key may be in flight at a time. Pass it to [NewConcurrency].
//
// A process that crashes releases nothing. Its places are free again when Hold is over. So choose Hold
// longer than the longest request, but not much longer: each lost release takes a place for that time. If a
// request lasts longer than Hold, its place is free for another one. Then more than Limit are in flight.
//
// The zero InFlight is not valid.
type InFlight struct {
	Limit int64         // 1 to 1,000
	Hold  time.Duration // how long a lease of TryAcquire lasts: 1 ms to MaxHold
}

const (
	// MaxHold is the longest time for which a place can be held.
	MaxHold = 24 * time.Hour

	// minHold is the shortest: one tick of a millisecond clock.
	minHold = time.Millisecond
	// maxInFlight bounds the row of a key to 16 kB.
	maxInFlight = 1000
	// maxLease is how far ahead of the clock a lease can end. One that ends later was taken before the clock
	// was stepped back, and counts as ended.
	maxLease = int64(MaxHold + ClockTolerance)
)

// String returns the policy as text, such as "10 in flight, 1m0s each".
func (p InFlight) String() string {
	return fmt.Sprintf("%d in flight, %v each", p.Limit, p.Hold)
}

func (p InFlight) check() error {
	if p.Limit < 1 || p.Limit > maxInFlight {
		return invalid("InFlight.Limit is %d; it must be 1 to %d", p.Limit, maxInFlight)
	}
	return checkHold("InFlight.Hold", p.Hold)
}

func checkHold(what string, d time.Duration) error {
	if d < minHold || d > MaxHold {
		return invalid("%s is %v; it must be %v to %v", what, d, minHold, MaxHold)
	}
	return nil
}

func (p InFlight) limit() int64 { return 1 } // a request takes one place

// lease is a place that is held.
type lease struct{ end, id int64 }

// leases returns the leases of a row, in the order of their ends.
func leases(row *Row) []lease {
	list := []byte(row.List)
	n := len(list) / 16
	all := make([]lease, n)
	for i := range all {
		all[i].end = int64(binary.BigEndian.Uint64(list[8*i:]))
		all[i].id = int64(binary.BigEndian.Uint64(list[8*(n+i):]))
	}
	return all
}

// heldAt returns the leases that are held at now.
func heldAt(row *Row, now int64) []lease {
	return slices.DeleteFunc(leases(row), func(l lease) bool { return l.end <= now || l.end > now+maxLease })
}

// setLeases sets the List of row: the ends of all leases, and then their ids.
func setLeases(row *Row, all []lease) {
	list := make([]byte, 0, 16*len(all))
	for _, l := range all {
		list = binary.BigEndian.AppendUint64(list, uint64(l.end))
	}
	for _, l := range all {
		list = binary.BigEndian.AppendUint64(list, uint64(l.id))
	}
	row.List = string(list)
}

func (p InFlight) apply(op *Op, row *Row, now int64, s *State) {
	switch op.Kind {
	case OpAcquire:
		if held := heldAt(row, now); int64(len(held)) < p.Limit {
			p.hold(op, held, row, now)
			s.Took = true
		}
	case OpRelease:
		all := leases(row)
		if i := slices.IndexFunc(all, op.holds); i >= 0 {
			setLeases(row, slices.Delete(all, i, i+1))
			s.Took = true
		}
	case OpExtend:
		held := heldAt(row, now)
		if i := slices.IndexFunc(held, op.holds); i >= 0 {
			p.hold(op, slices.Delete(held, i, i+1), row, now)
			s.Took = true
		}
	case OpReset:
		s.Took = row.Limit != 0
		row.List, row.At = "", 0
	}
	s.Row = *row
}

// holds reports whether l is the lease of op.
func (op *Op) holds(l lease) bool { return l.id == op.ID }

// hold adds the lease of op to those that are held, after those that end at the same time.
func (p InFlight) hold(op *Op, held []lease, row *Row, now int64) {
	end := now + int64(op.Hold)
	i := len(held)
	for i > 0 && held[i-1].end > end {
		i--
	}
	setLeases(row, slices.Insert(held, i, lease{end, op.ID}))
	row.At, row.Limit = now, p.Limit
}

func (p InFlight) result(op *Op, s *State, r *Result) {
	held := heldAt(&s.Row, s.Now)
	used := int64(len(held))
	*r = Result{
		Allowed:   s.Took || op.Kind == OpLook && used < p.Limit,
		Limit:     p.Limit,
		Remaining: max(0, p.Limit-used),
		Used:      used,
		Source:    SourceStore,
		Policy:    op.Policy,
		Taken:     op.taken(s),
	}
	if used > 0 {
		r.ResetAfter = time.Duration(ceilTo(held[used-1].end-s.Now, s.Tick))
	}
	switch {
	case r.Allowed:
	case used < p.Limit: // others took the last place, and released one in the meantime
		r.Remaining, r.Used, r.ResetAfter, r.RetryAfter = 0, p.Limit, lostRace, lostRace
	default:
		r.RetryAfter = retryAfter(held[used-p.Limit].end-s.Now, s.Tick)
	}
}
