package main

import "slices"

// groups is all mutants by the mechanism that they break, in the order of the table.
func groups() [][]Mutant {
	return [][]Mutant{
		buckets, windows, merged, policies, clocks, giveBacks, tables, sweeps,
		outcomes, breakers, retried, fallbacks, connections, files, queues, denials, keys, addresses, answers,
	}
}

// catalog is all mutants, in the order of the table.
func catalog() []Mutant { return slices.Concat(groups()...) }
