// Package stats counts latencies, and puts figures the way that tables have them.
package stats
