package workload

import (
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
)

// Expired returns rows of keys that a round is about to use, as if no caller had used them for more
// than an hour. A sweep removes some of them before they are used. The others must count as no row.
func Expired(round int, now time.Time) map[history.Key]limiter.Row {
	rows := map[history.Key]limiter.Row{}
	old := now.Add(-limiter.SweepGrace - time.Minute).UnixNano()
	add := func(n int, key string) {
		op := limiter.Op{Kind: limiter.OpTake, Name: Specs[n].Name, Key: key, Policy: Specs[n].Policies[0], Cost: 3}
		_, window := op.Policy.(limiter.FixedWindow)
		row, _ := op.Apply(limiter.Row{}, old)
		rows[history.Key{Window: window, Name: op.Name, Key: key}] = row
	}
	for n := range Specs {
		for i := 0; i < warmKeys; i += 2 {
			add(n, warmKey(round, i))
		}
		for i := 0; i < coldKeys/len(Specs); i += 3 {
			add(n, coldKey(round, i))
		}
	}
	return rows
}
