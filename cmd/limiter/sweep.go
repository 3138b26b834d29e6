package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// sweepJSON is what sweep prints.
type sweepJSON struct {
	Deleted  int64    `json:"deleted"`
	Complete bool     `json:"complete"` // every row was visited
	Visited  *float64 `json:"visited"`  // share of the tables, 0 to 1; null if it is not known
	Position string   `json:"position"` // for --from; empty if the sweep is complete
	Seconds  float64  `json:"seconds"`
}

func (a *app) sweep() *cobra.Command {
	var limit int64
	var longest time.Duration
	var from string
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete the rows of keys that have been unused for an hour",
		Long: "Sweep deletes the rows of keys that have been unused for an hour. It rests three times as long as it works,\n" +
			"and may run beside traffic. Ctrl-C ends it; what was deleted stays deleted. A sweep that ends early prints\n" +
			"its position, from which --from continues. Without --from, a sweep begins anywhere and visits all rows.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 || longest < 0 {
				return usageError{errors.New("--limit and --for must not be negative")}
			}
			db, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			store, err := db.Store(cmd.Context())
			if err != nil {
				return err
			}
			if from != "" {
				if err := store.ContinueSweep(from); err != nil {
					return usageError{fmt.Errorf("--from is %q; pass a position that limiter sweep has printed for this database", from)}
				}
			}
			result, err := a.runSweep(cmd.Context(), db, store, limit, longest)
			if err = db.Explain(err); err != nil && result.Deleted == 0 {
				return err
			}
			printed := a.printSweep(result)
			return cmp.Or(err, printed, cmd.Context().Err()) // --for is not an interrupt
		},
	}
	cmd.Flags().Int64Var(&limit, "limit", 0, "delete at most this many rows (default: all)")
	durationVar(cmd, &longest, "for", "stop after this time, such as 30s (default: when every row was visited)")
	cmd.Flags().StringVar(&from, "from", "", "begin at a position that a sweep has printed (default: anywhere)")
	return cmd
}

// runSweep sweeps until every row was visited, limit rows were deleted, or the time is over. The last
// two do not end it if they are 0. If the context ends, that is no error, unless no statement ended in the second
// half of longest and nothing was deleted.
func (a *app) runSweep(ctx context.Context, db *database.DB, store database.Store, limit int64, longest time.Duration) (sweepJSON, error) {
	var rows int64
	if a.terminal() != nil && !db.SweepsPages(ctx) {
		rows = db.CountRows(ctx, "", database.Kinds()...)
	}
	look := func() database.Progress {
		p := database.SweepProgress(store)
		p.Total = max(p.Total, rows)
		return p
	}
	var halfway atomic.Int64 // what was visited when half of longest was over; -1 before, or if longest is below 1 s
	halfway.Store(-1)
	if longest > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest)
		defer cancel()
		if longest >= time.Second {
			defer time.AfterFunc(longest/2, func() { halfway.Store(look().Visited) }).Stop()
		}
	}
	began := time.Now()
	p := startProgress(a.terminal(), func(step int) string {
		now := look()
		return progressLine(now.Share(), now.Deleted, "deleted", step, time.Since(began))
	})
	most := limit
	if limit == 0 {
		most = math.MaxInt64
	}
	n, err := store.Sweep(ctx, most)
	p.stop()
	end := look()
	result := sweepJSON{Deleted: n, Complete: err == nil && n < most, Position: end.Position, Seconds: show.Seconds(time.Since(began))}
	if end.Total > 0 {
		share := end.Share()
		result.Visited = &share
	}
	if result.Complete {
		result.Position = ""
	}
	switch waited := halfway.Load() == end.Visited; {
	case ctx.Err() == nil:
		return result, err
	case n == 0 && waited && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return result, fmt.Errorf("no statement ended in the last %v; a table may be locked: %w", longest/2, err)
	}
	return result, nil
}

func (a *app) printSweep(s sweepJSON) error {
	if a.json() {
		return show.JSON(a.stdout, s)
	}
	rest := "; no other row has expired"
	if !s.Complete {
		rest = "; there may be more"
		if s.Visited != nil {
			rest = fmt.Sprintf(" in %.1f %% of the tables; there may be more", 100**s.Visited)
		}
		if s.Position != "" {
			rest += ": to continue, pass --from "
			if strings.Contains(s.Position, ".") { // logs of cron must not get it
				rest += "and a position; -o json prints it, and it holds a key"
			} else {
				rest += s.Position
			}
		}
	}
	fmt.Fprintf(a.out, "deleted %s in %s%s\n", show.Count(s.Deleted, "row"), seconds(s.Seconds), rest)
	return nil
}
