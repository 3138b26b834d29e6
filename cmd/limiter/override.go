package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
	"github.com/sqlimit/limiter/overrides"
)

// overrideJSON is an override in JSON.
type overrideJSON struct {
	Limiter string `json:"limiter"`
	show.KeyJSON
	Policy    policyJSON `json:"policy"`
	Note      string     `json:"note"`
	ExpiresAt *time.Time `json:"expires_at"` // null if it never ends
	Expired   bool       `json:"expired"`
}

func (a *app) override() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Give single keys a policy of their own",
		Long: "Override reads and writes the table limiter_overrides. Programs that use package overrides follow\n" +
			"within seconds; others ignore the table.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("write limiter override set, list or rm")}
		},
	}
	cmd.AddCommand(a.overrideSet(), a.overrideList(), a.overrideRemove())
	return cmd
}

// lastYear is the last whole year that the table admits: up to 2^62 - 1 ns since 1970.
const lastYear = 2115

func (a *app) overrideSet() *cobra.Command {
	var flags policyFlags
	o := database.Override{}
	var expires time.Duration
	cmd := a.keyCommand("set LIMITER KEY --capacity N --interval D | --limit N [--window D]", "Set the policy of a key",
		func(ctx context.Context, db *database.DB, name string, key []byte) error {
			o.Limiter, o.Key = name, key
			if err := db.SetOverride(ctx, o); err != nil {
				return err
			}
			if err := a.printOverrides([]database.Override{o}); err != nil || a.json() {
				return err
			}
			if known, err := db.Known(ctx, name); err == nil && len(known.Limiters) > 0 { // a hint: the override is set, and the role may lack rights
				fmt.Fprintf(a.out, "limiter %s has %s\n", name, show.Cell(known.String()))
			}
			return nil
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if flags.limitAlone() {
			o.Limit = flags.limit
			err = flags.checkLimit(args[0])
		} else {
			o.Policy, err = flags.policy(args[0])
		}
		if err != nil {
			return err
		}
		if o.Policy == nil && o.Limit == 0 {
			return usageError{errors.New("no policy is given; pass --capacity and --interval, --limit and --window, or --limit alone")}
		}
		if cmd.Flags().Changed("expires-in") {
			o.ExpiresAt = time.Now().Add(expires).Add(time.Second - 1).UTC().Truncate(time.Second)
			if expires <= 0 || o.ExpiresAt.Year() > lastYear {
				return usageError{fmt.Errorf("--expires-in is %v; it must be above 0, and end before the year %d", expires, lastYear+1)}
			}
		}
		return nil
	}
	cmd.Long = "Set writes the policy of a key. With --limit alone it replaces only the limit of a window of any sort, or of\n" +
		"requests in flight: programs must pass Base to package overrides."
	cmd.Flags().StringVar(&o.Note, "note", "", "who asked for the override, and why")
	durationVar(cmd, &expires, "expires-in", "when the override ends, such as 24h or 30d (default: never)")
	flags.register(cmd)
	return cmd
}

func (a *app) overrideList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list [LIMITER]",
		Short: "List the overrides, including expired ones",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usageError{fmt.Errorf("--max is %d; it must be at least 1", limit)}
			}
			return a.briefly(cmd.Context(), func(ctx context.Context, db *database.DB) error {
				list, err := db.Overrides(ctx, append(args, "")[0], limit)
				if err != nil {
					return err
				}
				return a.printOverrides(list)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "max", 10_000, "list at most this many")
	a.completeLimiters(cmd)
	return cmd
}

// removedJSON is what override rm prints.
type removedJSON struct {
	Limiter string `json:"limiter"`
	show.KeyJSON
	Removed bool `json:"removed"`
}

func (a *app) overrideRemove() *cobra.Command {
	return a.keyCommand("rm LIMITER KEY", "Remove the override of a key; exit code 1 if it has none",
		func(ctx context.Context, db *database.DB, name string, key []byte) error {
			found, err := db.RemoveOverride(ctx, name, key)
			switch {
			case err != nil:
				return err
			case !found:
				return fmt.Errorf("%s of limiter %s has no override", show.Key(key), name)
			case a.json():
				return show.JSON(a.stdout, removedJSON{name, show.NewKeyJSON(key), true})
			}
			fmt.Fprintf(a.out, "removed the override of %s of limiter %s\n", show.Key(key), name)
			return nil
		})
}

func (a *app) printOverrides(list []database.Override) error {
	rows := []overrideJSON{}
	for _, o := range list {
		row := overrideJSON{Limiter: o.Limiter, KeyJSON: show.NewKeyJSON(o.Key), Policy: newPolicy(o.Policy), Note: o.Note}
		if o.Limit != 0 {
			row.Policy = policyJSON{Kind: overrides.KindLimit, Limit: o.Limit}
		}
		if !o.ExpiresAt.IsZero() {
			row.ExpiresAt, row.Expired = &o.ExpiresAt, !o.ExpiresAt.After(time.Now())
		}
		rows = append(rows, row)
	}
	return a.printTable(rows, func(w io.Writer) {
		fmt.Fprintln(w, "LIMITER\tKEY\tPOLICY\tEXPIRES\tNOTE")
		for _, r := range rows {
			expires := "never"
			if r.ExpiresAt != nil {
				expires = r.ExpiresAt.Format(time.RFC3339)
			}
			if r.Expired {
				expires += " (expired)"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", show.Cell(r.Limiter), r.Text(), r.Policy, expires, show.Cell(r.Note))
		}
	})
}
