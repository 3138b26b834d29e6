//go:build !race

package testenv

// Race is whether the race detector is on. It makes tests slow, and a sync.Pool forget at random.
const Race = false
