package testenv

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

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
