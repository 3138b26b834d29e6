package borrow

import "time"

const (
	// busy is how many takes within the ttl make a key busy, so that its tokens are taken ahead.
	busy = 4
	// growth is how much larger than the last chunk the next one may be.
	growth = 4
	// share is the part of a bucket that a chunk may be: an eighth.
	share = 8
)

// demand is what a process has seen of a key, and how much it takes ahead. It counts in a window that is at
// least one ttl long, and keeps the one before.
type demand struct {
	chunk         int64 // the latest; 0 means 1
	now, before   counted
	start, starts int64 // of the windows, by the monotonic clock
}

// counted is takes and their costs.
type counted struct{ takes, tokens int64 }

// count counts a take. A key that was not used meanwhile begins anew.
func (d *demand) count(cost, mono int64, ttl time.Duration) {
	switch age := mono - d.start; {
	case d.now.takes == 0 || age < 0 || age >= 2*int64(ttl):
		*d = demand{start: mono}
	case age >= int64(ttl):
		d.before, d.starts = d.now, d.start
		d.now, d.start = counted{}, mono
	}
	d.now.takes++
	d.now.tokens += min(cost, maxTokens)
}

// next returns how many tokens the next statement should take: at most what the process is likely to use
// in half of the ttl.
func (d *demand) next(p bucket, n, mono int64, ttl time.Duration) int64 {
	if max(d.now.takes, d.before.takes) < busy {
		return 1
	}
	from, tokens := d.start, d.now.tokens
	if d.before.takes > 0 {
		from, tokens = d.starts, tokens+d.before.tokens
	}
	likely := float64(tokens) * float64(ttl) / float64(max(mono-from, 1)) / 2
	most := min(growth*max(d.chunk, 1), n, p.Capacity/share)
	return max(1, int64(min(likely, float64(most))))
}

// halve makes the chunk smaller, because tokens were not used.
func (d *demand) halve() { d.chunk = max(1, d.chunk/2) }
