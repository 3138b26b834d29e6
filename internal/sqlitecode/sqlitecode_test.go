package sqlitecode_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter/internal/sqlitecode"
	"github.com/sqlimit/limiter/internal/testenv"
)

// coded is an error of a driver that tells SQLite's code by a method.
type coded int

func (c coded) Error() string { return "coded" }
func (c coded) Code() int     { return int(c) }

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		busy bool
	}{
		{nil, 0, false},
		{coded(5), 5, true},
		{coded(517), 5, true}, // SQLITE_BUSY_SNAPSHOT
		{coded(262), 6, true}, // SQLITE_LOCKED_SHAREDCACHE
		{coded(1), 1, false},
		{coded(2067), 19, false}, // SQLITE_CONSTRAINT_UNIQUE
		{errors.Join(errors.New("other"), coded(6)), 6, true},
		{fmt.Errorf("database is locked: %w", coded(1)), 1, false}, // the method counts
		{errors.New("goose: database is locked"), 5, true},
		{errors.New("database table is locked: sqlite_master"), 6, true},
		{errors.New("no such table: locks"), 1, false},
		{errors.New("unable to open database file: no such file"), 14, false},
		{errors.New("file is not a database"), 26, false},
		{errors.New("database disk image is malformed"), 11, false},
		{errors.New("lightning"), 0, false},
	} {
		if code, busy := sqlitecode.Of(c.err), sqlitecode.IsBusy(c.err); code != c.code || busy != c.busy {
			t.Errorf("%v: code %d, busy %t; want %d, %t", c.err, code, busy, c.code, c.busy)
		}
	}
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	advised := map[int]bool{3: true, 8: true, 11: true, 14: true, 23: true, 26: true}
	for code := range 30 {
		testenv.Equal(t, sqlitecode.Advice(code) != "", advised[code], "advice for", code)
	}
}
