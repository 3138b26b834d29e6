package show

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON writes v as indented JSON in printable ASCII. Standard JSON leaves DEL, the control characters
// from U+0080 to U+009F and the marks that change the direction of text as they are, and a terminal
// may obey them.
func JSON(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	var out bytes.Buffer
	for _, r := range text.String() { // everything outside ASCII is within a string
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// KeyJSON is a stored key in JSON.
type KeyJSON struct {
	// Key is the key as text. It is nil if the key is a digest or no valid UTF-8.
	Key *string `json:"key"`
	// KeyHex is the stored key in hex, for the flag --key-hex.
	KeyHex string `json:"key_hex"`

	text string
}

// Text returns the key as [Key] does.
func (k KeyJSON) Text() string { return k.text }

// NewKeyJSON returns a stored key for JSON.
func NewKeyJSON(key []byte) KeyJSON {
	k := KeyJSON{KeyHex: hex.EncodeToString(key), text: Key(key)}
	if utf8.Valid(key) && len(key) > 0 && key[0] != 0 {
		text := string(key)
		k.Key = &text
	}
	return k
}

// Count returns a number of things for people. The noun is in the singular.
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Seconds is a duration for JSON.
func Seconds(d time.Duration) float64 { return d.Seconds() }

// Duration returns d for people: the longer, the coarser.
func Duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}
