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

// limiterLines is how many lines a limiter has at least: an empty one, its name, and a key.
const limiterLines = 3

// fitting returns how many limiters fit on a screen that begins with a given one. If not all fit, one
// line is for the number of the others. At least one limiter fits.
func fitting(r database.Reading, height, first int) int {
	left := len(r.Limiters) - first
	if first == 0 && left <= (height-1)/limiterLines {
		return left
	}
	return min(left, max(1, (height-2)/limiterLines))
}

// topText returns a reading as lines of text, from the limiter with the index first. A width or height of
// 0 means no limit.
func topText(r database.Reading, width, height, first int) string {
	lines := []string{fmt.Sprintf("%s read: %s", show.Count(r.Rows, "row"), readText(r))}
	if len(r.Limiters) == 0 {
		lines = append(lines, "No limiter has any state.")
	}
	first = max(0, min(first, len(r.Limiters)-1))
	limiters, others := r.Limiters[first:], ""
	if height > 0 {
		limiters = limiters[:fitting(r, height, first)]
		if others = othersText(first, len(r.Limiters)-first-len(limiters)); others != "" {
			height--
		}
	}
	for i, l := range limiters {
		shown, more := l.Keys, ""
		if height > 0 { // share the rest of the screen evenly; each limiter gets its name and at least one key
			left := (height-len(lines))/(len(limiters)-i) - 2
			shown = shown[:min(len(shown), max(left, 1))]
			if cut := len(l.Keys) - len(shown); cut > 0 {
				more = " (" + show.Count(int64(cut), "more key") + ")"
			}
		}
		lines = append(lines, "", show.Cell(l.Limiter)+more+unusedText(l, r.Known))
		lines = append(lines, keyLines(shown, width)...)
	}
	if height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	if others != "" {
		lines = append(lines, others)
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
	part := "a part of the tables"
	if r.Total > 0 {
		part = fmt.Sprintf("%.1f %% of about %d", 100*r.Share(), r.Total)
	}
	return part + ", and the best keys of the parts before"
}

// othersText says how many limiters a screen does not show.
func othersText(above, below int) string {
	var parts []string
	if above > 0 {
		parts = append(parts, show.Count(int64(above), "limiter")+" above")
	}
	if below > 0 {
		parts = append(parts, show.Count(int64(below), "more limiter"))
	}
	return strings.Join(parts, ", ")
}

func unusedText(l database.Usages, known []string) string {
	switch {
	case len(l.Keys) > 0:
		return ""
	case len(known) > 0:
		return ": no key in use was found; known limiters: " + show.Cell(strings.Join(known, ", "))
	}
	return ": no key in use was found"
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
