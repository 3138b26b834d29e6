package main

import "github.com/sqlimit/limiter/bench/internal/stats"

// comparison is a ratio that says something: of the decisions a second of two contenders.
type comparison struct{ ours, peer, title string }

var comparisons = []comparison{
	{"ours-postgres", "upsert-postgres", "PostgreSQL ÷ UPSERT by hand"},
	{"ours-postgres-async", "upsert-postgres", "PostgreSQL, async commit ÷ UPSERT by hand"},
	{"ours-postgres", "select-postgres", "PostgreSQL ÷ SELECT by hand"},
	{"ours-postgres", "upsert-rows", "PostgreSQL ÷ UPSERT of 256 rows"},
	{"ours-all", "upsert-two", "AllowAll of two limits ÷ two UPSERTs by hand"},
	{"ours-postgres", "redis_rate", "PostgreSQL ÷ redis_rate"},
	{"ours-postgres-async", "redis_rate", "PostgreSQL, async commit ÷ redis_rate"},
	{"ours-sqlite", "upsert-sqlite", "SQLite ÷ UPSERT by hand"},
	{"ours-memory", "go-limiter", "memory ÷ go-limiter"},
	{"ours-memory", "throttled-memory", "memory ÷ throttled"},
	{"ours-memory", "x-time-rate", "memory ÷ x/time/rate in a map"},
}

// ratio returns a comparison in the group g, and whether both of it are there.
func (o *outcome) ratio(c comparison, g group) (stats.Spread, bool) {
	var ours, peer *series
	for _, other := range g {
		if other.contender.name == c.ours {
			ours = o.of(other)
		}
	}
	// The ceiling is measured once a scenario, in the first of its groups.
	for id, s := range o.series {
		if id.scenario == g[0].scenario.name && id.contender == c.peer && (id.callers == callersOf(g) || isRows(c.peer)) {
			peer = s
		}
	}
	if ours == nil || peer == nil || ours.err != nil || peer.err != nil {
		return stats.Spread{}, false
	}
	return ours.over(peer), true
}

// callersOf returns the number of callers of a group, 0 if it has only contenders with rows.
func callersOf(g group) int {
	for _, c := range g {
		if c.contender.rows == 0 {
			return c.callers
		}
	}
	return 0
}

func isRows(name string) bool {
	for _, c := range contenders {
		if c.name == name {
			return c.rows > 0
		}
	}
	return false
}
