package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// terminal returns standard error if it is a terminal, otherwise nil.
func (a *app) terminal() *os.File {
	if file, ok := a.rawStderr.(*os.File); ok && term.IsTerminal(file.Fd()) {
		return file
	}
	return nil
}

// progress shows on a terminal how far a command is.
type progress struct {
	done  chan struct{}
	ended chan struct{}
}

// startProgress starts to draw on w what line returns, unless w is nil.
func startProgress(w *os.File, line func(step int) string) *progress {
	p := &progress{done: make(chan struct{}), ended: make(chan struct{})}
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
			text := show.Clip(line(step), width)
			fmt.Fprintf(w, "\r%-*s", width, text)
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

// stop clears the line.
func (p *progress) stop() {
	close(p.done)
	<-p.ended
}

// progressWidth is how many columns the progress takes at most.
const progressWidth = 75

// progressLine returns a line about a count, such as of rows deleted. Share is how much of the tables
// was visited. If it is 0, that is not known, and the bar only moves.
func progressLine(share float64, count int64, what string, step int, elapsed time.Duration) string {
	bar, percent, left := []byte(strings.Repeat(".", 20)), "", ""
	if share > 0 {
		copy(bar, strings.Repeat("=", int(20*share)))
		percent = fmt.Sprintf(" %.0f %%,", 100*share)
		rest := min(elapsed.Seconds()*(1-share)/share, 1e6) // at the beginning it may be anything
		left = fmt.Sprintf(", %s left", (time.Duration(rest) * time.Second))
	} else {
		bar[step%20], bar[(step+1)%20] = '=', '='
		left = ", " + elapsed.Round(time.Second).String()
	}
	rate := float64(count) / max(elapsed.Seconds(), 0.001)
	return fmt.Sprintf("[%s]%s %d rows %s, %.0f rows/s%s", bar, percent, count, what, rate, left)
}
