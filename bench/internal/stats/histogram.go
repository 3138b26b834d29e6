package stats

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that are at most 1/32 wide, so that its quantiles are right to
// 3 %. The zero Histogram is empty.
type Histogram struct {
	counts [64 * perOctave]uint64
	total  uint64
}

// perOctave is the number of buckets between a power of two and the next.
const perOctave = 32

// bucket returns the number of the bucket that d belongs to.
func bucket(d time.Duration) int {
	ns := uint64(max(d, 0))
	if ns < perOctave {
		return int(ns)
	}
	shift := bits.Len64(ns) - bits.Len64(perOctave)
	return shift*perOctave + int(ns>>shift)
}

// lowest returns the shortest duration that belongs to a bucket.
func lowest(bucket int) time.Duration {
	if bucket < 2*perOctave {
		return time.Duration(bucket)
	}
	shift := bucket/perOctave - 1
	return time.Duration(bucket%perOctave+perOctave) << shift
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
}

// Merge counts what other counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range &other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// Total returns how many were counted.
func (h *Histogram) Total() uint64 { return h.total }

// Quantile returns a duration that a share of q of all do not exceed, rounded down to its bucket; 0
// if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for i, n := range &h.counts {
		if seen += n; seen > rank || n > 0 && seen == h.total {
			return lowest(i)
		}
	}
	return 0
}
