//go:build !race

package handler_test

// raceEnabled is whether the race detector is on, which makes requests slow.
const raceEnabled = false
