// Package prove is the harness that shows what the limiter does under faults: scenarios
// with real servers that are killed, cut off, filled up and set to other times, whose
// histories are checked. Run it by go test: see README.md.
package prove
