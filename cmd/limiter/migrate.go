package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
	"github.com/sqlimit/limiter/migrations"
)

// migrationJSON is a migration in the output of migrate.
type migrationJSON struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // null if it has not been applied
}

func (a *app) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create, upgrade or drop the tables",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("write limiter migrate up, down or status")}
		},
	}
	var yes bool
	down := a.migration("down", "Drop all tables and the state of all limiters", func(ctx context.Context, db *database.DB) error {
		unapplied := checkApplied(ctx, db)
		// Down says more if there are tables without a record.
		err := cmp.Or(migrations.Down(ctx, db.Dialect, db.SQL, db.Migrations()...), unapplied)
		if err == nil {
			fmt.Fprintf(a.stderr, "limiter: dropped the tables in %s\n", db.Name())
		}
		return err
	})
	down.Flags().BoolVar(&yes, "yes", false, "confirm that the state of all limiters is lost")
	down.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if yes {
			return nil
		}
		return a.briefly(cmd.Context(), func(ctx context.Context, db *database.DB) error {
			if err := checkApplied(ctx, db); err != nil {
				return err
			}
			rows, err := db.Rows(ctx, "", database.Kinds()...)
			var overrides int64
			if err == nil {
				overrides, err = db.CountOverrides(ctx)
			}
			lost := fmt.Sprintf("about %s of limiters and %s", show.Count(rows, "row"), show.Count(overrides, "override"))
			if errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			if err != nil {
				lost = fmt.Sprintf("rows that cannot be counted: %s", database.Line(err))
			}
			return usageError{fmt.Errorf("this drops the tables in %s, with %s; pass --yes to do it", db.Name(), lost)}
		})
	}
	cmd.AddCommand(down,
		a.migration("up", "Apply the migrations that are missing", func(ctx context.Context, db *database.DB) error {
			return migrations.Up(ctx, db.Dialect, db.SQL, db.Migrations()...)
		}),
		a.migration("status", "List the migrations; exit code 5 if one is missing", nil))
	return cmd
}

// checkApplied returns an error if no migration is recorded: the database is probably another one than
// the user means.
func checkApplied(ctx context.Context, db *database.DB) error {
	list, err := migrations.Status(ctx, db.Dialect, db.SQL, db.Migrations()...)
	if err == nil && !slices.ContainsFunc(list, func(m migrations.MigrationStatus) bool { return m.Applied }) {
		return fmt.Errorf("%w: %s records no migration in limiter_goose_version; pass the --database or --schema whose tables you mean, or restore the rows of that table",
			limiter.ErrMisconfigured, db.Name())
	}
	return db.Explain(err)
}

// migration returns a command that changes the tables, unless change is nil, and lists the migrations.
func (a *app) migration(use, short string, change func(context.Context, *database.DB) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context(), use == "up")
			if err != nil {
				return err
			}
			defer db.Close()
			if change != nil {
				if err := change(cmd.Context(), db); err != nil {
					return db.Explain(err)
				}
			}
			list, err := migrations.Status(cmd.Context(), db.Dialect, db.SQL, db.Migrations()...)
			if err != nil {
				return db.Explain(err)
			}
			if err := a.printMigrations(list); err != nil {
				return err
			}
			for _, m := range list {
				if !m.Applied && use == "status" {
					return errAttention
				}
			}
			return nil
		},
	}
}

func (a *app) printMigrations(list []migrations.MigrationStatus) error {
	rows := []migrationJSON{}
	for _, m := range list {
		row := migrationJSON{Version: m.Version, Name: m.Name}
		if m.Applied {
			row.AppliedAt = &m.AppliedAt
		}
		rows = append(rows, row)
	}
	return a.printTable(rows, func(w io.Writer) {
		fmt.Fprintln(w, "VERSION\tNAME\tAPPLIED")
		for _, r := range rows {
			applied := "no: run limiter migrate up"
			if r.AppliedAt != nil {
				applied = r.AppliedAt.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\n", r.Version, r.Name, applied)
		}
	})
}
