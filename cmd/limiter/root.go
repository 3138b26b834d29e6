package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// app is one run of the program.
type app struct {
	database, schema, output string
	timeout                  time.Duration

	stdout, stderr io.Writer
	rawStderr      io.Writer    // stderr without escapes, for the progress of a sweep
	out            *show.Writer // stdout, with escapes for everything that is not printable
	began          bool         // the arguments and flags were valid
}

// run runs a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, rawStderr: stderr, stderr: &show.Writer{To: stderr}, out: &show.Writer{To: stdout}}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	wrong := err != nil && !a.began
	if wrong {
		err = usageError{err}
	}
	if err == nil {
		err = a.out.Err // a full disk, for example
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	var said saidError
	if err != nil && !errors.Is(err, errAttention) && !errors.As(err, &said) {
		fmt.Fprintf(a.stderr, "limiter: %s\n", database.Text(err))
		if wrong {
			fmt.Fprintln(a.stderr, "Run limiter help for the commands.")
		}
	}
	return exitCode(ctx, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "limiter",
		Short:         "Show and change the state of limiters in PostgreSQL and SQLite",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if a.output != "text" && a.output != "json" {
				return fmt.Errorf("--output is %q; it must be text or json", a.output)
			}
			if a.timeout <= 0 {
				return fmt.Errorf("--timeout is %v; it must be above 0", a.timeout)
			}
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			a.began = true
			completes := cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd
			if len(args) > 0 && !completes { // the name of a limiter, in every command
				return database.CheckName(args[0])
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&a.database, "database", "d", "", "postgres://..., 'host=... dbname=...' or sqlite:PATH (default: $DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "schema of the tables in PostgreSQL (default: public)")
	flags.StringVarP(&a.output, "output", "o", "text", "text or json")
	a.timeout = 10 * time.Second
	flags.Var(durationFlag{&a.timeout}, "timeout", "how long a command, or one reading of top, may take; migrate and sweep have no limit")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.migrate(), a.peek(), a.reset(), a.block(), a.override(), a.sweep(), a.doctor(), a.top())
	root.SetOut(a.out)
	root.SetErr(a.rawStderr)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() { // cobra's own commands ignore a wrong argument
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("there is no command %q", strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			cmd.RunE = func(*cobra.Command, []string) error {
				return usageError{errors.New("write limiter completion bash, zsh, fish or powershell")}
			}
		}
	}
	return root
}

// checkFlags rejects an empty text. A script passes one if its variable is not set, and the command must not then
// use DATABASE_URL instead.
func checkFlags(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "note" {
			err = fmt.Errorf("--%s is empty; write a value, or leave it out", f.Name)
		}
	})
	return err
}

// version returns the version of the module, which go install records.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// open opens the database.
func (a *app) open(ctx context.Context) (*database.DB, error) { return a.openDB(ctx, false) }

func (a *app) openDB(ctx context.Context, create bool) (*database.DB, error) {
	url := a.database
	if url == "" {
		url = os.Getenv("DATABASE_URL")
	}
	return database.Open(ctx, database.Options{URL: url, Schema: a.schema, Create: create})
}

// json reports whether the command prints JSON.
func (a *app) json() bool { return a.output == "json" }

// printTable prints rows as JSON, or what text writes, with a tab between two columns.
func (a *app) printTable(rows any, text func(w io.Writer)) error {
	if a.json() {
		return show.JSON(a.stdout, rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// briefly runs f on the database within the time limit.
func (a *app) briefly(ctx context.Context, f func(ctx context.Context, db *database.DB) error) error {
	db, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	return a.limited(ctx, db, func(ctx context.Context) error { return f(ctx, db) })
}

// limited calls f within the time limit. If f exceeds it, the error says what to do.
func (a *app) limited(ctx context.Context, db *database.DB, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	err := f(ctx)
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer within %v: %w; look for a session that holds a lock, or pass a longer --timeout", db.Name(), a.timeout, err)
	}
	return err
}
