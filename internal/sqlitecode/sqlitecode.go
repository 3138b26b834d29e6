// Package sqlitecode reads the result codes of SQLite in drivers' errors. It
// names no driver.
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

// Of returns the primary result code in err, 0 if there is none. Drivers that
// have no method for it still pass on SQLite's own words, which do not change;
// those for what is met most are looked for.
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

// IsBusy reports whether a lock of another connection was in the way, so that
// nothing was done.
func IsBusy(err error) bool {
	c := Of(err)
	return c == Busy || c == Locked
}

// Advice returns what an operator must do about a database that cannot be used as
// it stands there, and "" for a code that tells of something else.
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
