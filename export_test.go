package limiter

import (
	"maps"
	"slices"
)

// SetDenyClock gives the deny cache another local clock.
func (l *Limiter) SetDenyClock(clock func() (wall, mono int64)) {
	l.deny.clock = func() instant {
		wall, mono := clock()
		return instant{wall, mono}
	}
}

// DenyKeys returns the keys that the deny cache holds, and how many they are by its own count.
func (l *Limiter) DenyKeys() (keys []string, counted int) {
	for i := range l.deny.refusals.shards {
		sh := &l.deny.refusals.shards[i]
		sh.mu.RLock()
		keys = slices.AppendSeq(keys, maps.Keys(sh.keys))
		sh.mu.RUnlock()
	}
	return keys, int(l.deny.refusals.held.Load())
}

// Visible returns r without its unexported part, which a Result made in a test cannot have.
func (r Result) Visible() Result {
	r.takenFrom = takenFrom{}
	return r
}
