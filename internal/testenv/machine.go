// Package testenv finds what tests need on this machine: the programs of PostgreSQL, an account that
// may run them, and free ports. It also starts processes of a test binary, and decides whether a test
// may be skipped. Packages internal/daemon, internal/dbtest and prove, and tests, call it.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
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

// PostgreSQL returns the directory with the programs of the newest PostgreSQL on this host, and its
// major version.
func PostgreSQL(ctx context.Context) (dir, major string, err error) {
	newest := 0
	// Debian and its relatives keep all but psql out of PATH.
	candidates, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is right
	for _, initdb := range candidates {
		bin := filepath.Dir(initdb)
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && n > newest {
			newest, dir = n, bin
		}
	}
	if newest > 0 {
		return dir, strconv.Itoa(newest), nil
	}

	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", "", err
	}
	// "initdb (PostgreSQL) 17.5 (Homebrew)"
	out, err := exec.CommandContext(ctx, initdb, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", initdb, err)
	}
	version := regexp.MustCompile(`\) (\d+)`).FindSubmatch(out)
	if version == nil {
		return "", "", fmt.Errorf("%s --version printed %q", initdb, out)
	}
	return filepath.Dir(initdb), string(version[1]), nil
}
