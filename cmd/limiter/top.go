package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// topJSON is what top prints.
type topJSON struct {
	RowsRead int64            `json:"rows_read"`
	Rows     int64            `json:"rows"`                     // about how many the tables have; 0 if that is not known
	All      bool             `json:"all"`                      // every row was read, otherwise a sample
	Known    []string         `json:"known_limiters,omitempty"` // if LIMITER has no row
	Limiters []topLimiterJSON `json:"limiters"`                 // those with the fullest keys first
}

// topLimiterJSON is a limiter with the keys that use most of their limits, highest first.
type topLimiterJSON struct {
	Limiter string       `json:"limiter"`
	Keys    []topKeyJSON `json:"keys"`
}

type topKeyJSON struct {
	show.KeyJSON
	stateJSON
}

func (a *app) top() *cobra.Command {
	var keys int
	var once, exact bool
	every := time.Second
	cmd := &cobra.Command{
		Use:   "top [LIMITER]",
		Short: "Show the keys that use most of their limits, live on a terminal",
		Long: "Top shows the keys that use most of their limits. On a terminal it reads again every second, until you\n" +
			"press q. In a pipe it prints one table. It reads only a part of a large table each time, and keeps\n" +
			"the keys that use most. Refusals are not stored, so top shows what is used.\n\n" +
			"With --exact, top reads every row of LIMITER once, prints the keys, and ends. It rests as long as it works.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keys < 1 || keys > 1000 {
				return usageError{fmt.Errorf("--keys is %d; it must be 1 to 1000", keys)}
			}
			if every < time.Second {
				return usageError{fmt.Errorf("--every is %v; it must be at least 1s", every)}
			}
			if exact && len(args) == 0 {
				return usageError{errors.New("--exact reads one limiter; write limiter top --exact LIMITER")}
			}
			db, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			out, isFile := a.stdout.(*os.File)
			if exact {
				reading, err := a.exact(cmd.Context(), db, args[0], keys)
				if err != nil {
					return err
				}
				return a.printTop(reading, widthOf(out))
			}
			top := database.NewTop(db, append(args, "")[0], keys)
			read := func() (reading database.Reading, err error) {
				err = a.limited(cmd.Context(), db, func(ctx context.Context) (err error) {
					reading, err = top.Read(ctx)
					return err
				})
				return reading, err
			}
			first, err := read() // before the screen starts, so that a wrong database is a plain error
			if err != nil {
				return err
			}
			if once || a.json() || !isFile || !term.IsTerminal(out.Fd()) {
				return a.printTop(first, widthOf(out))
			}
			s := &screen{read: read, every: every, reading: first, at: time.Now(), width: 80, height: 24}
			_, err = tea.NewProgram(s, tea.WithContext(cmd.Context()), tea.WithOutput(out)).Run()
			if errors.Is(err, tea.ErrInterrupted) || cmd.Context().Err() != nil {
				return errInterrupted
			}
			return cmp.Or(s.err, err)
		},
	}
	cmd.Flags().IntVarP(&keys, "keys", "n", 10, "keys for each limiter, 1 to 1000")
	cmd.Flags().BoolVar(&once, "once", false, "print one table, also on a terminal")
	cmd.Flags().BoolVar(&exact, "exact", false, "read every row of LIMITER once, instead of a part")
	durationVar(cmd, &every, "every", "how often to read")
	a.completeLimiters(cmd)
	return cmd
}

// exact reads all rows of a limiter, and shows its progress on a terminal.
func (a *app) exact(ctx context.Context, db *database.DB, name string, keys int) (database.Reading, error) {
	var rows, permille atomic.Int64
	began := time.Now()
	p := startProgress(a.terminal(), func(step int) string {
		return progressLine(float64(permille.Load())/1000, rows.Load(), "read", step, time.Since(began))
	})
	defer p.stop()
	return db.Exact(ctx, name, keys, a.timeout, func(read int64, share float64) {
		rows.Store(read)
		permille.Store(int64(1000 * share))
	})
}

// widthOf returns the width of a terminal in columns, or 0 if file is no terminal.
func widthOf(file *os.File) int {
	if file == nil {
		return 0
	}
	width, _, err := term.GetSize(file.Fd())
	if err != nil {
		return 0
	}
	return width
}

func (a *app) printTop(r database.Reading, width int) error {
	if !a.json() {
		_, err := fmt.Fprint(a.out, topText(r, width, 0, 0))
		return err
	}
	answer := topJSON{RowsRead: r.Rows, Rows: r.Total, All: r.All, Known: r.Known, Limiters: []topLimiterJSON{}}
	for _, l := range r.Limiters {
		one := topLimiterJSON{Limiter: l.Limiter, Keys: []topKeyJSON{}}
		for _, u := range l.Keys {
			one.Keys = append(one.Keys, topKeyJSON{show.NewKeyJSON(u.Key), newState(u.State)})
		}
		answer.Limiters = append(answer.Limiters, one)
	}
	return show.JSON(a.stdout, answer)
}

// screen is the live screen of top.
type screen struct {
	read          func() (database.Reading, error)
	every         time.Duration
	reading       database.Reading
	at            time.Time // of the reading
	err           error     // of the latest reading
	width, height int
	first         int // of the limiters on the screen
}

// tick is the message that it is time to read.
type tick struct{}

// readingMsg is what a reading returned.
type readingMsg struct {
	reading database.Reading
	err     error
}

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd { return s.wait() }

func (s *screen) wait() tea.Cmd {
	return tea.Tick(s.every, func(time.Time) tea.Msg { return tick{} })
}

// Update implements [tea.Model]. A reading begins only after the one before has ended.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc":
			s.err = nil
			return s, tea.Quit
		case "ctrl+c":
			s.err = errInterrupted
			return s, tea.Quit
		case "down", "j":
			s.first++
		case "up", "k":
			s.first--
		case "pgdown", "space":
			s.first += fitting(s.reading, s.height-1, s.first)
		case "pgup":
			s.first -= max(1, (s.height-3)/limiterLines)
		case "home":
			s.first = 0
		}
		s.first = max(0, min(s.first, len(s.reading.Limiters)-1))
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tick:
		return s, func() tea.Msg {
			r, err := s.read()
			return readingMsg{r, err}
		}
	case readingMsg:
		if s.err = msg.err; msg.err == nil {
			s.reading, s.at = msg.reading, time.Now()
		}
		next := s.wait()
		return s, next
	}
	return s, nil
}

// View implements [tea.Model].
func (s *screen) View() tea.View {
	status := "q quits"
	if s.first > 0 || fitting(s.reading, s.height-1, s.first) < len(s.reading.Limiters) {
		status += ", arrows and PgUp and PgDn scroll"
	}
	if s.err != nil {
		status = fmt.Sprintf("as of %s; the database fails: %s", s.at.Format(time.TimeOnly), show.Cell(database.Line(s.err)))
	}
	v := tea.NewView(topText(s.reading, s.width, s.height-1, s.first) + show.Clip(status, s.width))
	v.AltScreen = true
	return v
}
