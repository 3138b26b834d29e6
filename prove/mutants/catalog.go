package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed catalog.txt
var catalogText string

// bug is a bug of the catalog.
type bug struct {
	name, what string
	edits      []edit
	checks     []check // each has to find the bug
}

// edit replaces a text that a file of the repository has exactly once.
type edit struct{ file, old, new string }

// check is a test that finds a bug, and a part of its message. Any other failure does not count.
type check struct{ pkg, run, says string }

// parse reads a catalog. The README describes the format.
func parse(text string) (bugs []bug, err error) {
	for n, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			word, rest = line[:1], line[1:]
		}
		switch {
		case line == "" || word == "#":
		case word == "==":
			bugs = append(bugs, bug{name: rest})
		case len(bugs) == 0 || !bugs[len(bugs)-1].set(word, rest):
			return nil, fmt.Errorf("line %d of the catalog is unknown, or in the wrong place: %q", n+1, line)
		}
	}
	return bugs, nil
}

// set sets what a line of the catalog says of the bug. It returns false if the line makes no sense here.
func (b *bug) set(word, rest string) bool {
	edits, checks := len(b.edits), len(b.checks)
	switch {
	case word == "bug:":
		b.what = rest
	case word == "found:": // for readers
	case word == "edit:":
		b.edits = append(b.edits, edit{file: rest})
	case word == "check:":
		pkg, run, _ := strings.Cut(rest, " ")
		b.checks = append(b.checks, check{pkg: pkg, run: run})
	case word == "says:" && checks > 0:
		b.checks[checks-1].says = rest
	case word == "-" && edits > 0:
		b.edits[edits-1].old += rest + "\n"
	case word == "+" && edits > 0:
		b.edits[edits-1].new += rest + "\n"
	default:
		return false
	}
	return true
}

// plant writes the changed files into dir, and returns their paths by those of the files that they
// replace. The tree stays as it is.
func (b *bug) plant(root, dir string) (replace map[string]string, err error) {
	replace = map[string]string{}
	for _, e := range b.edits {
		file := filepath.Join(root, e.file)
		if replace[file] == "" {
			replace[file] = file
		}
		text, err := os.ReadFile(replace[file])
		if err != nil {
			return nil, err
		}
		// The line feed at the end is a part of neither text.
		old, changed := strings.TrimSuffix(e.old, "\n"), strings.TrimSuffix(e.new, "\n")
		if n := strings.Count(string(text), old); n != 1 || old == changed {
			return nil, fmt.Errorf("%s has this %d times; it must be there once, and its replacement must differ:\n%s", e.file, n, old)
		}
		// The compiler tells the name of the file that it was given.
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(replace[file], []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
			return nil, err
		}
	}
	return replace, nil
}
