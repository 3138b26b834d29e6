// Package show prints what a database holds without letting it control the terminal. Keys are any
// bytes, and the names of a database are chosen by others. The commands call it for all output.
package show

import (
	"cmp"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Key returns a stored key for people. A plain key is quoted, with escapes for everything that is
// not printable. A digest begins with byte 0 and is shown in hex, without quotes.
func Key(key []byte) string {
	if len(key) > 0 && key[0] == 0 {
		return "0x" + hex.EncodeToString(key)
	}
	return strconv.Quote(string(key))
}

// Text returns s with escapes for everything that is not printable, except for line breaks and tabs.
func Text(s string) string {
	clean := true
	for _, r := range s {
		clean = clean && keep(r)
	}
	if clean && utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if keep(r) && (r != utf8.RuneError || size > 1) {
			out.WriteString(s[:size])
		} else {
			quoted := strconv.Quote(s[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return out.String()
}

func keep(r rune) bool { return strconv.IsPrint(r) || r == '\n' || r == '\t' }

// Writer passes text on as [Text] returns it. Each Write must end at the end of a character.
type Writer struct {
	To  io.Writer
	Err error // of the first Write that failed
}

// Write writes the escaped text. It reports the length of the text before escaping.
func (w *Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.To, Text(string(p))); err != nil {
		w.Err = cmp.Or(w.Err, err)
		return 0, err
	}
	return len(p), nil
}

// Cell returns s for one cell of a table: like [Text], with line breaks and tabs escaped.
func Cell(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Text(s))
}
