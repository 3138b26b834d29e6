package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// plantCatalog plants the bugs of the catalog, and returns an error unless the tests find all of them.
func plantCatalog(ctx context.Context, o options) error {
	bugs, err := parse(catalogText)
	if err != nil {
		return err
	}
	wanted, err := regexp.Compile(o.names)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	bugs = slices.DeleteFunc(bugs, func(b bug) bool { return !wanted.MatchString(b.name) })
	if len(bugs) == 0 {
		return fmt.Errorf("no bug of the catalog matches %q; -list shows the names", o.names)
	}
	if o.list {
		for _, b := range bugs {
			fmt.Printf("%s: %s\n", b.name, b.what)
		}
		return nil
	}
	return inPlace(ctx, func(root, dir string, env []string) error {
		var all errgroup.Group
		all.SetLimit(max(1, o.jobs))
		var missed atomic.Int64
		for _, b := range bugs {
			all.Go(func() error {
				began := time.Now()
				err := tests{root, dir, env}.find(ctx, b)
				took := time.Since(began).Seconds()
				if err == nil {
					fmt.Printf("found  %5.1f s  %s\n", took, b.name)
					return nil
				}
				missed.Add(1)
				fmt.Printf("MISSED %5.1f s  %s: %s\n%v\n", took, b.name, b.what, err)
				return ctx.Err()
			})
		}
		if err := all.Wait(); err != nil || missed.Load() == 0 {
			return err
		}
		return fmt.Errorf("%d of %d bugs were not found", missed.Load(), len(bugs))
	})
}

// tests runs tests of the repository at root, with temporary files in dir.
type tests struct {
	root, dir string
	env       []string
}

// find plants a bug and returns an error unless each of its checks finds it. A check must pass on the
// code as it is.
func (t tests) find(ctx context.Context, b bug) error {
	dir, err := os.MkdirTemp(t.dir, "bug")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	replace, err := b.plant(t.root, dir)
	if err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return err
	}
	for _, c := range b.checks {
		said, failed, err := t.run(ctx, c)
		if err != nil {
			return fmt.Errorf("%s %s: %w\n%s", c.pkg, c.run, err, ending(said))
		}
		if failed {
			return fmt.Errorf("%s %s fails on the code as it is\n%s", c.pkg, c.run, ending(said))
		}
		if !strings.Contains(said, "--- PASS: ") || strings.Contains(said, "--- SKIP: ") {
			return fmt.Errorf("%s %s runs no test, or skips one\n%s", c.pkg, c.run, ending(said))
		}
		said, failed, err = t.run(ctx, c, "-overlay="+overlay)
		if err != nil {
			return fmt.Errorf("%s %s: %w\n%s", c.pkg, c.run, err, ending(said))
		}
		if !failed || !strings.Contains(said, c.says) {
			return fmt.Errorf("%s %s: failed %t; it should fail and say %q\n%s", c.pkg, c.run, failed, c.says, ending(said))
		}
	}
	return nil
}

// longest is how long a check may take. Most take a second or two.
const longest = time.Minute

// run runs a check and returns what it says, and whether a test failed.
func (t tests) run(ctx context.Context, c check, flags ...string) (said string, failed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*longest) // with a build
	defer cancel()
	args := append([]string{"test", "-vet=off", "-v", "-count=1", "-timeout=" + longest.String(), "-run=" + c.run}, flags...)
	args = append(args, c.pkg)
	if c.pkg == "./prove" { // one short round
		args = append(args, "-tier=ci", "-fraction=0.001", "-calls=15", "-report=")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	cmd.Env = append(cmd.Environ(), t.env...)
	cmd.WaitDelay = 10 * time.Second // a process that a test left behind must not be waited for
	out, err := cmd.CombinedOutput()
	said = string(out)
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		if strings.Contains(said, "[build failed]") {
			return said, false, errors.New("the changed code does not compile")
		}
		return said, true, nil
	}
	return said, false, err
}

// ending returns the end of a text.
func ending(s string) string { return s[max(0, len(s)-8<<10):] }
