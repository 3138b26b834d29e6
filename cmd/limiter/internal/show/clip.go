package show

import "github.com/charmbracelet/x/ansi"

// Clip cuts a line of printable text at a width in columns of the terminal.
func Clip(s string, width int) string { return ansi.Truncate(s, width, "…") }

// Middle cuts printable text in its middle, because keys often differ at their ends.
func Middle(s string, width int) string {
	total := ansi.StringWidth(s)
	if total <= width {
		return s
	}
	head := width / 2
	return ansi.Truncate(s, head, "") + "…" + ansi.TruncateLeft(s, total-(width-head-1), "")
}
