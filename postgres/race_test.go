//go:build race

package postgres_test

// raceEnabled is whether the race detector is on.
const raceEnabled = true
