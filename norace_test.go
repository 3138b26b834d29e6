//go:build !race

package limiter_test

// raceEnabled is whether the race detector is on: a sync.Pool forgets at random then.
const raceEnabled = false
