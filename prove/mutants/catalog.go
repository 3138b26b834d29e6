package main

import "slices"

// catalog is all mutants, in the order of the table.
func catalog() []Mutant {
	return slices.Concat(
		buckets, windows, merged, policies, clocks, giveBacks, tables, sweeps,
		outcomes, breakers, retried, fallbacks, connections, files, queues, denials, keys, addresses, answers,
	)
}
