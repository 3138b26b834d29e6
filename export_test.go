package limiter

// SetDenyClock gives the deny cache another local clock.
func (l *Limiter) SetDenyClock(clock func() (wall, mono int64)) {
	l.deny.clock = func() instant {
		wall, mono := clock()
		return instant{wall, mono}
	}
}

// DenyCounts returns how many keys the deny cache holds by its own count, and by its maps'.
func (l *Limiter) DenyCounts() (counted, held int) {
	for i := range l.deny.refusals.shards {
		sh := &l.deny.refusals.shards[i]
		sh.mu.RLock()
		held += len(sh.keys)
		sh.mu.RUnlock()
	}
	return int(l.deny.refusals.held.Load()), held
}

// DenyKeys returns the keys that the deny cache holds.
func (l *Limiter) DenyKeys() (keys []string) {
	for i := range l.deny.refusals.shards {
		for key := range l.deny.refusals.shards[i].keys {
			keys = append(keys, key)
		}
	}
	return keys
}

// Visible returns r without its unexported part, which a Result made in a test cannot have.
func (r Result) Visible() Result {
	r.takenFrom = takenFrom{}
	return r
}
