package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that limiters need; exit code 5 if something is to do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.briefly(cmd.Context(), func(ctx context.Context, db *database.DB) error {
				findings, err := db.Doctor(ctx)
				if printed := a.printFindings(findings); printed != nil || err != nil {
					return errorOr(printed, err)
				}
				for _, f := range findings {
					if !f.OK {
						return errAttention
					}
				}
				return nil
			})
		},
	}
}

// errorOr returns the first error that is not nil.
func errorOr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func (a *app) printFindings(findings []database.Finding) error {
	if a.json() {
		return show.JSON(a.stdout, findings)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		if f.OK {
			fmt.Fprintf(w, "ok\t%s\t%s\n", f.Check, show.Cell(f.Found))
			continue
		}
		fmt.Fprintf(w, "FIX\t%s\t%s\n\t\t-> %s\n", f.Check, show.Cell(f.Found), show.Cell(f.Advice))
	}
	return w.Flush()
}
