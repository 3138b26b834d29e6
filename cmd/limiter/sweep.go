package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// sweepBatch is how many rows one call of Sweep deletes at most. The progress bar moves after each call.
const sweepBatch = 10_000

// sweepJSON is what sweep prints.
type sweepJSON struct {
	Deleted  int64   `json:"deleted"`
	Complete bool    `json:"complete"` // every row was visited
	Seconds  float64 `json:"seconds"`
}

func (a *app) sweep() *cobra.Command {
	var limit int64
	var longest time.Duration
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete the rows of keys that have been unused for an hour",
		Long: "Sweep deletes the rows of keys that have been unused for an hour. It rests three times as long as it works,\n" +
			"and may run beside traffic. Ctrl-C ends it; what was deleted stays deleted.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 || longest < 0 {
				return usageError{fmt.Errorf("--limit and --for must not be negative")}
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
			ctx := cmd.Context()
			if longest > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, longest)
				defer cancel()
			}
			began := time.Now()
			p := startProgress(a.terminal(), began, func() int64 { return estimate(ctx, db) })
			result, err := sweepAll(ctx, store.Sweep, limit, &p.deleted)
			p.stop()
			result.Seconds = show.Seconds(time.Since(began))
			failed := err != nil && ctx.Err() == nil
			if failed && result.Deleted == 0 {
				return err
			}
			printed := a.printSweep(result)
			switch {
			case failed:
				return err
			case printed != nil:
				return printed
			}
			return cmd.Context().Err() // --for is not an interrupt
		},
	}
	cmd.Flags().Int64Var(&limit, "limit", 0, "delete at most this many rows (default: all)")
	durationVar(cmd, &longest, "for", "stop after this time, such as 30s (default: when every row was visited)")
	return cmd
}

// sweepAll calls sweep until every row was visited, limit rows were deleted (0 means no limit) or
// ctx ended.
func sweepAll(ctx context.Context, sweep func(context.Context, int64) (int64, error), limit int64, deleted *atomic.Int64) (sweepJSON, error) {
	for {
		batch := int64(sweepBatch)
		if limit > 0 {
			batch = min(batch, limit-deleted.Load())
		}
		if batch == 0 {
			return sweepJSON{Deleted: deleted.Load()}, nil
		}
		n, err := sweep(ctx, batch)
		deleted.Add(n)
		if err != nil || n < batch {
			return sweepJSON{Deleted: deleted.Load(), Complete: err == nil}, err
		}
	}
}

func (a *app) printSweep(s sweepJSON) error {
	if a.json() {
		return show.JSON(a.stdout, s)
	}
	rest := "; there may be more"
	if s.Complete {
		rest = "; no other row has expired"
	}
	fmt.Fprintf(a.out, "deleted %s in %s%s\n", show.Count(s.Deleted, "row"), seconds(s.Seconds), rest)
	return nil
}

// terminal returns standard error if it is a terminal, otherwise nil.
func (a *app) terminal() *os.File {
	if file, ok := a.rawStderr.(*os.File); ok && term.IsTerminal(file.Fd()) {
		return file
	}
	return nil
}

// estimate returns about how many rows a sweep will delete, or 0 if it cannot tell.
func estimate(ctx context.Context, db *database.DB) (rows int64) {
	for _, k := range database.Kinds() {
		c, err := db.CountExpired(ctx, k)
		if err != nil || c.Partial() {
			return 0
		}
		rows += c.Expired
	}
	return rows
}

// progress shows on a terminal how far a sweep is.
type progress struct {
	deleted atomic.Int64
	done    chan struct{}
	ended   chan struct{}
}

// startProgress starts to draw on w, unless w is nil. total returns how many rows the sweep will
// delete.
func startProgress(w *os.File, began time.Time, total func() int64) *progress {
	p := &progress{done: make(chan struct{}), ended: make(chan struct{})}
	var rows int64
	if w != nil {
		rows = total() // before the sweep deletes any
	}
	go func() {
		defer close(p.ended)
		if w == nil {
			return
		}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for step := 0; ; step++ {
			width := progressWidth
			if columns := widthOf(w); columns > 0 {
				width = min(width, columns-1)
			}
			fmt.Fprintf(w, "\r%s", show.Clip(progressLine(p.deleted.Load(), rows, step, time.Since(began)), width))
			select {
			case <-p.done:
				fmt.Fprintf(w, "\r%s\r", strings.Repeat(" ", width))
				return
			case <-tick.C:
			}
		}
	}()
	return p
}

// progressWidth is how many columns the progress takes at most.
const progressWidth = 75

// progressLine returns a line of at most [progressWidth] columns. If total is 0, it is unknown, and the
// bar only moves.
func progressLine(deleted, total int64, step int, elapsed time.Duration) string {
	bar, of := []byte(strings.Repeat(".", 20)), ""
	if total > 0 {
		full := min(20, int(20*deleted/total))
		copy(bar, strings.Repeat("=", full))
		of = fmt.Sprintf(" of about %d", total)
	} else {
		bar[step%20], bar[(step+1)%20] = '=', '='
	}
	return fmt.Sprintf("[%s] %d%s rows deleted, %s ", bar, deleted, of, elapsed.Round(time.Second))
}

// stop clears the line.
func (p *progress) stop() {
	close(p.done)
	<-p.ended
}
