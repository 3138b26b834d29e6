package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that limiters need; exit code 5 if there is something to fix",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.briefly(cmd.Context(), func(ctx context.Context, db *database.DB) error {
				findings, err := db.Doctor(ctx)
				if err := a.printFindings(findings); err != nil {
					return err
				}
				if err != nil {
					return saidError{err}
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

func (a *app) printFindings(findings []database.Finding) error {
	return a.printTable(findings, func(w io.Writer) {
		for _, f := range findings {
			if f.OK {
				fmt.Fprintf(w, "ok\t%s\t%s\n", f.Check, show.Cell(f.Found))
				continue
			}
			fmt.Fprintf(w, "FIX\t%s\t%s\n\t\t-> %s\n", f.Check, show.Cell(f.Found), show.Cell(f.Advice))
		}
	})
}
