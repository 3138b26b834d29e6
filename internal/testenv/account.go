// Package testenv finds what tests need on this machine: the programs of PostgreSQL, an account that
// may run them, and free ports. It also starts processes of a test binary, and decides whether a test
// may be skipped. Packages internal/daemon, internal/dbtest and prove, and tests, call it.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/user"
)

// Account is a user of this machine.
type Account struct{ UID, GID int }

// Unprivileged returns the account for programs that refuse to run as root. It returns nil, this
// process's own account, unless that is root.
func Unprivileged() (*Account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var account Account
		_, err = fmt.Sscan(found.Uid+" "+found.Gid, &account.UID, &account.GID)
		return &account, err
	}
	return nil, fmt.Errorf("no account to run servers as: %w", errors.Join(errs...))
}
