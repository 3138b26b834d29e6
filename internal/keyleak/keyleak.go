// Package keyleak finds traces of a key in the output of programs, in the forms in which they
// write bytes. Tests call it to check that no key gets into errors or logs.
package keyleak

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Traces are the forms of texts that must not appear. They are safe for concurrent use.
type Traces []trace

type trace struct {
	name string
	text []byte
}

// Of returns the forms of texts, and of the halves of each, because a program may cut a text off.
// If a text has 20 or more bytes that appear nowhere else, its halves are not found by chance.
func Of(texts ...string) Traces {
	var all Traces
	for _, text := range texts {
		middle := len(text) / 2
		for part, text := range map[string]string{"": text, "first half, ": text[:middle], "last half, ": text[middle:]} {
			for name, form := range forms(text) {
				all = append(all, trace{part + name, []byte(form)})
			}
		}
		// An attacker finds the address of a hash without a secret by trying all addresses.
		sum := sha256.Sum256([]byte(text))
		all = append(all, trace{"SHA-256", sum[:]}, trace{"SHA-256 in hex", []byte(hex.EncodeToString(sum[:]))})
	}
	return all
}

// In returns the names of the forms that text holds.
func (t Traces) In(text []byte) []string {
	var names []string
	for _, trace := range t {
		if bytes.Contains(text, trace.text) {
			names = append(names, trace.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func forms(text string) map[string]string {
	lower := hex.EncodeToString([]byte(text))
	all := map[string]string{
		"as it is": text, "lower case": strings.ToLower(text), "upper case": strings.ToUpper(text),
		"hex": lower, "upper hex": strings.ToUpper(lower),
		"query": url.QueryEscape(text), "path": url.PathEscape(text),
		"percent": every(text, "%%%02x"), "upper percent": every(text, "%%%02X"),
		"Go": strings.Trim(strconv.QuoteToASCII(text), `"`), "SQL": strings.ReplaceAll(text, "'", "''"),
		"HTML": html.EscapeString(text), "JSON": inJSON(text), "bytea": escaped(text),
		"decimal": strings.TrimSpace(every(text, "%d ")), "listed": strings.TrimSuffix(every(text, "0x%x, "), ", "),
		"UTF-16LE": inUTF16(text, binary.LittleEndian), "UTF-16BE": inUTF16(text, binary.BigEndian),
	}
	for offset := range 3 {
		for name, encoding := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "URL base64": base64.RawURLEncoding} {
			all[fmt.Sprint(name, ", offset ", offset)] = inBase64(encoding, text, offset)
		}
	}
	return all
}

func every(text, format string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, format, text[i])
	}
	return b.String()
}

// inBase64 returns what does not depend on what stands before and behind text, where it
// begins offset bytes behind a multiple of three.
func inBase64(encoding *base64.Encoding, text string, offset int) string {
	from := (3 - offset) % 3
	if len(text) < from+3 {
		return encoding.EncodeToString([]byte(text))
	}
	return encoding.EncodeToString([]byte(text[from : len(text)-(len(text)-from)%3]))
}

// escaped is PostgreSQL's older form of bytea.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\\':
			b.WriteString(`\\`)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func inJSON(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // of a string there is none
	}
	return strings.Trim(string(quoted), `"`)
}

func inUTF16(text string, order binary.AppendByteOrder) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// Text returns the texts of an error and of all errors behind it.
func Text(err error) string {
	var b strings.Builder
	walk(err, func(err error) { fmt.Fprintf(&b, "%T: %v\n%+v\n%q\n", err, err, err, err) })
	return b.String()
}

// Fields returns what the fields of an error and of all errors behind it contain, as a structured
// log would show them.
func Fields(err error) string {
	var b strings.Builder
	walk(err, func(err error) {
		fmt.Fprintf(&b, "%#v\n", err)
		if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
			fmt.Fprintf(&b, "%+v\n", v.Elem())
		}
	})
	return b.String()
}

func walk(err error, f func(error)) {
	if err == nil {
		return
	}
	f(err)
	switch e := err.(type) { //nolint:errorlint // it is the tree that is walked
	case interface{ Unwrap() error }:
		walk(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			walk(err, f)
		}
	}
}
