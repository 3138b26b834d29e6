// Package sqlitecode reads SQLite's result codes from the errors of any driver. Packages sqlite and
// migrations call it.
package sqlitecode

import (
	"errors"
	"strings"
)

// Primary result codes, see https://www.sqlite.org/rescode.html.
const (
	Error      = 1
	Perm       = 3
	Abort      = 4
	Busy       = 5
	Locked     = 6
	ReadOnly   = 8
	Interrupt  = 9
	IOErr      = 10
	Corrupt    = 11
	Full       = 13
	CantOpen   = 14
	Protocol   = 15
	Schema     = 17
	TooBig     = 18
	Constraint = 19
	Mismatch   = 20
	Auth       = 23
	Range      = 25
	NotADB     = 26
)

// Of returns the primary result code in err, or 0 if there is none. If the driver's error has no
// method for the code, Of looks for SQLite's own words, which do not change, for the most frequent
// codes.
func Of(err error) int {
	if err == nil {
		return 0
	}
	if coder, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return coder.Code() & 0xff // the upper bits hold the extended code
	}
	text := err.Error()
	for _, c := range []struct {
		text string
		code int
	}{
		{"database is locked", Busy},
		{"database table is locked", Locked},
		{"no such table", Error},
		{"no such column", Error},
		{"has no column", Error},
		{"already exists", Error},
		{"there is already", Error},
		{"attempt to write a readonly database", ReadOnly},
		{"database or disk is full", Full},
		{"unable to open database file", CantOpen},
		{"file is not a database", NotADB},
		{"database disk image is malformed", Corrupt},
	} {
		if strings.Contains(text, c.text) {
			return c.code
		}
	}
	return 0
}

// IsBusy reports whether a statement did nothing because of another connection's lock.
func IsBusy(err error) bool {
	c := Of(err)
	return c == Busy || c == Locked
}

// Advice returns what an operator must do about a database that cannot be used, or "" if the code
// has another meaning.
func Advice(code int) string {
	switch code {
	case ReadOnly:
		return "the database cannot be written; fix the permissions of the file, its -wal and -shm, and its directory, or the parameters of the connection"
	case CantOpen, Perm, Auth:
		return "the database cannot be opened; see that its directory exists and that this process may write there"
	case NotADB, Corrupt:
		return "the file is not an intact SQLite database; restore it, or remove it with its -wal and -shm files to start anew"
	}
	return ""
}
