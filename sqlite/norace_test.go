//go:build !race

package sqlite_test

// raceEnabled is whether the race detector is on.
const raceEnabled = false
