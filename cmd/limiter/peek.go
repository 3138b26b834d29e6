package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// peekJSON is what peek prints.
type peekJSON struct {
	Limiter string `json:"limiter"`
	show.KeyJSON
	States []stateJSON `json:"states"` // empty if the key has no row
	// Known are the first limiters that have rows, if the limiter has none.
	Known []string `json:"known_limiters,omitempty"`
}

// stateJSON is what a key may do.
type stateJSON struct {
	Policy     policyJSON `json:"policy"`
	Allowed    bool       `json:"allowed"` // a request of cost 1 passes now
	Used       int64      `json:"used"`
	Remaining  int64      `json:"remaining"`
	RetryAfter float64    `json:"retry_after_seconds"`
	ResetAfter float64    `json:"reset_after_seconds"`
}

func (a *app) peek() *cobra.Command {
	return a.keyCommand("peek LIMITER KEY", "Show what a key may do now", a.peekKey)
}

func (a *app) peekKey(ctx context.Context, db *database.DB, name string, key []byte) error {
	rows, err := db.Find(ctx, name, key)
	if err != nil {
		return err
	}
	answer := peekJSON{Limiter: name, KeyJSON: show.NewKeyJSON(key), States: []stateJSON{}}
	for _, r := range rows {
		s, err := r.Look(ctx)
		if err != nil {
			return err
		}
		answer.States = append(answer.States, newState(s))
	}
	var known database.Known
	if len(rows) == 0 {
		if known, err = db.Known(ctx, name); err != nil {
			return err
		}
		answer.Known = known.Limiters
	}
	if a.json() {
		return show.JSON(a.stdout, answer)
	}
	fmt.Fprintf(a.out, "limiter    %s\nkey        %s\n", name, show.Key(key))
	if len(answer.States) == 0 {
		fmt.Fprintf(a.out, "state      %s\n", show.Cell(known.String()))
	}
	for _, s := range answer.States {
		s.print(a.out)
	}
	return nil
}

func newState(s database.State) stateJSON {
	return stateJSON{
		newPolicy(s.Policy), s.Allowed, s.Used, s.Remaining,
		show.Seconds(s.RetryAfter), show.Seconds(s.ResetAfter),
	}
}

func (s stateJSON) print(w io.Writer) {
	fmt.Fprintf(w, "policy     %s\nused       %d of %d\nremaining  %d\n", s.Policy, s.Used, s.Policy.limit(), s.Remaining)
	if !s.Allowed {
		fmt.Fprintf(w, "refused    for another %s\n", seconds(s.RetryAfter))
	}
	if s.ResetAfter > 0 {
		fmt.Fprintf(w, "unused     in %s\n", seconds(s.ResetAfter))
	}
}

func seconds(s float64) string { return show.Duration(time.Duration(s * float64(time.Second))) }
