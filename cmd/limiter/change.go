package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// resetJSON is what reset prints.
type resetJSON struct {
	Limiter string `json:"limiter"`
	show.KeyJSON
	Reset bool `json:"reset"` // false if the key had no row
}

func (a *app) reset() *cobra.Command {
	return a.keyCommand("reset LIMITER KEY", "Forget what a key has used, and end its block",
		func(ctx context.Context, db *database.DB, name string, key []byte) error {
			done, err := db.Reset(ctx, name, key)
			switch {
			case err != nil:
				return err
			case a.json():
				return show.JSON(a.stdout, resetJSON{name, show.NewKeyJSON(key), done})
			case done:
				fmt.Fprintf(a.out, "reset %s of limiter %s\n", show.Key(key), name)
				return nil
			}
			known, err := db.Known(ctx, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s of limiter %s has %s\n", show.Key(key), name, show.Cell(known.String()))
			return nil
		})
}

func (a *app) block() *cobra.Command {
	var flags policyFlags
	var policy limiter.Policy
	var d time.Duration
	cmd := a.keyCommand("block LIMITER KEY --for DURATION", "Refuse all requests of a key for a time",
		func(ctx context.Context, db *database.DB, name string, key []byte) error {
			if err := db.Block(ctx, name, key, int64(d), policy); err != nil {
				return err
			}
			return a.peekKey(ctx, db, name, key)
		})
	cmd.Long = "Block refuses all requests of a key for a time. On a window it lasts until the end of the window\n" +
		"in which that time ends. For an unused key, block takes the policy of another key of the limiter,\n" +
		"unless you pass one. For a calendar window, pass --period: a row does not record when the next\n" +
		"period ends."
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if policy, err = flags.policy(args[0]); err != nil {
			return err
		}
		if d <= 0 || d > limiter.MaxBlock {
			return usageError{fmt.Errorf("--for is %v; pass how long, above 0 and at most %v", d, limiter.MaxBlock)}
		}
		return nil
	}
	durationVar(cmd, &d, "for", "how long, such as 1h or 7d")
	flags.register(cmd)
	flags.registerCalendar(cmd)
	return cmd
}

// completeLimiters makes a shell complete the name of a limiter, which is the first argument.
func (a *app) completeLimiters(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.timeout = min(a.timeout, 2*time.Second) // somebody waits at the prompt
		var names []string
		err := a.briefly(cmd.Context(), func(ctx context.Context, db *database.DB) (err error) {
			names, err = db.Limiters(ctx, database.MaxLimiters)
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var valid []string // a name that limiter.New rejects must not reach the shell
		for _, name := range names {
			if database.CheckName(name) == nil {
				valid = append(valid, name)
			}
		}
		return valid, cobra.ShellCompDirectiveNoFileComp
	}
}
