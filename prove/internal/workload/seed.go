package workload

import (
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
	"github.com/sqlimit/limiter/prove/internal/kinds"
)

// Expired returns rows of keys that a round is about to use, as if no caller had used them for more
// than an hour. A sweep removes some of them before they are used. The others must count as no row.
func Expired(round int, now time.Time) map[history.Key]limiter.Row {
	rows := map[history.Key]limiter.Row{}
	old := now.Add(-limiter.SweepGrace - time.Minute).UnixNano()
	add := func(n int, key string) {
		op := limiter.Op{Kind: limiter.OpTake, Name: kinds.Workload[n].Name, Key: key, Policy: kinds.Workload[n].Policies[0], Cost: 3}
		row, _ := op.Apply(limiter.Row{}, old)
		rows[history.KeyOf(&op)] = row
	}
	for n := range kinds.Workload {
		for i := 0; i < warmKeys; i += 2 {
			add(n, warmKey(round, i))
		}
		for i := 0; i < coldKeys/len(kinds.Workload); i += 3 {
			add(n, coldKey(round, i))
		}
	}
	return rows
}
