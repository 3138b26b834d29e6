package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sqlimit/limiter/prove/mutants/trial"
)

//go:embed catalog.txt
var catalogText string

type bug struct {
	name, what string
	edits      []edit
	checks     []check // each has to find the bug
}

// edit replaces a text that a file of the repository has exactly once.
type edit struct{ file, old, new string }

// check is a test that finds a bug, and a part of its message. Any other failure does not count.
type check struct{ pkg, run, says string }

// parse reads a catalog. The README describes the format. A line in the wrong place makes it panic.
func parse(text string) (bugs []bug) {
	for line := range strings.SplitSeq(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			word, rest = line[:1], line[1:]
		}
		var b *bug
		if word == "==" {
			bugs = append(bugs, bug{name: rest})
		} else if len(bugs) > 0 {
			b = &bugs[len(bugs)-1]
		}
		switch word {
		case "", "#", "==", "found:": // for readers
		case "bug:":
			b.what = rest
		case "edit:":
			b.edits = append(b.edits, edit{file: rest})
		case "-":
			b.edits[len(b.edits)-1].old += rest + "\n"
		case "+":
			b.edits[len(b.edits)-1].new += rest + "\n"
		case "check:":
			pkg, run, _ := strings.Cut(rest, " ")
			b.checks = append(b.checks, check{pkg: pkg, run: run})
		case "says:":
			b.checks[len(b.checks)-1].says = rest
		default:
			panic("the catalog has the unknown line " + line)
		}
	}
	return bugs
}

// plant writes the changed files into dir, and returns the file for -overlay. The tree stays as it is.
func (b *bug) plant(root, dir string) (overlay string, err error) {
	replace := map[string]string{} // the changed files by those that they replace
	for _, e := range b.edits {
		file := filepath.Join(root, e.file)
		if replace[file] == "" {
			replace[file] = file
		}
		text, err := os.ReadFile(replace[file])
		if err != nil {
			return "", err
		}
		// The line feed at the end is a part of neither text.
		old, changed := strings.TrimSuffix(e.old, "\n"), strings.TrimSuffix(e.new, "\n")
		if n := strings.Count(string(text), old); n != 1 || old == changed {
			return "", fmt.Errorf("%s has this %d times; it must be there once, and its replacement must differ:\n%s", e.file, n, old)
		}
		// The compiler tells the name of the file that it was given.
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(replace[file], []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
			return "", err
		}
	}
	return trial.WriteOverlay(dir, replace)
}

// plantCatalog plants the bugs of the catalog, and returns an error unless the tests find all of them.
func plantCatalog(ctx context.Context) error {
	bugs := slices.DeleteFunc(parse(catalogText), func(b bug) bool { return !match.MatchString(b.name) })
	if len(bugs) == 0 {
		return fmt.Errorf("no bug of the catalog matches %q; -list shows the names", match)
	}
	if *list {
		for _, b := range bugs {
			fmt.Printf("%s: %s\n", b.name, b.what)
		}
		return nil
	}
	return inPlace(ctx, func(root, dir string, env []string) error {
		var all errgroup.Group
		all.SetLimit(max(1, *jobs))
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
	overlay, err := b.plant(t.root, dir)
	if err != nil {
		return err
	}
	for _, c := range b.checks {
		said, failed, err := t.run(ctx, c)
		switch {
		case err != nil:
		case failed:
			err = errors.New("it fails on the code as it is")
		case !strings.Contains(said, "--- PASS: ") || strings.Contains(said, "--- SKIP: "):
			err = errors.New("it runs no test, or skips one")
		default:
			said, failed, err = t.run(ctx, c, "-overlay="+overlay)
			if err == nil && (!failed || !strings.Contains(said, c.says)) {
				err = fmt.Errorf("failed %t; it should fail and say %q", failed, c.says)
			}
		}
		if err != nil {
			// The end of a long text says why.
			return fmt.Errorf("%s %s: %w\n%s", c.pkg, c.run, err, said[max(0, len(said)-8<<10):])
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
