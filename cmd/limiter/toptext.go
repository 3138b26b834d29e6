package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/cmd/limiter/internal/show"
)

// numbersWidth is the width of the columns beside the key.
const numbersWidth = 47

// topText returns a reading as lines of text. A width or height of 0 means no limit.
func topText(r database.Reading, width, height int) string {
	lines := []string{fmt.Sprintf("%s read: %s", show.Count(r.Rows, "row"), readText(r))}
	share := len(r.Limiters)
	if share == 0 {
		lines = append(lines, "No limiter has any state.")
	}
	for i, l := range r.Limiters {
		shown := l.Keys
		if height > 0 { // share the rest of the screen evenly; each limiter gets its name and at least one key
			left := (height-len(lines))/(share-i) - 2
			shown = shown[:min(len(shown), max(left, 1))]
		}
		lines = append(lines, "", show.Cell(l.Limiter)+unusedText(l))
		lines = append(lines, keyLines(shown, width)...)
	}
	if height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	if width > 0 {
		for i := range lines {
			lines[i] = show.Clip(lines[i], width)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func readText(r database.Reading) string {
	if r.All {
		return "all of them"
	}
	return "a part of the tables, and the best keys of the parts before"
}

func unusedText(l database.Usages) string {
	if len(l.Keys) == 0 {
		return ": no key in use was found"
	}
	return ""
}

// keyLines returns a line for each key.
func keyLines(keys []database.Usage, width int) []string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, u := range keys {
		key := show.Key(u.Key)
		if width > 0 {
			key = show.Middle(key, max(8, width-numbersWidth))
		}
		state := fmt.Sprintf("unused in %s", show.Duration(u.ResetAfter))
		if !u.Allowed {
			state = fmt.Sprintf("refused for %s", show.Duration(u.RetryAfter))
		}
		fmt.Fprintf(w, "  %3.0f %%\t%d of %d\t%s\t%s\n", 100*min(u.Share(), 9.99), u.Used, u.Limit, state, key)
	}
	_ = w.Flush() // a strings.Builder never fails
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")[:len(keys)]
}
