// Package generate makes mutants of Go packages: small changes that tests should notice. All mutants
// are compiled into the packages together, and an environment variable chooses one at run time.
package generate

import (
	"context"
	"fmt"
	"strings"
)

// Mutant is one change of the code.
type Mutant struct {
	ID       int    // chooses it at run time, from 1; the same code always has the same ids
	Site     int    // the place in the code, which can be recorded as reached
	Dir      string // of the package, from the root of the repository
	File     string // from the root of the repository
	Func     string // the function, with its receiver; "" in a variable or an SQL text
	Operator string
	Before   string
	After    string
	Ordinal  int // counts mutants that are otherwise the same
}

// Identity tells mutants apart without line numbers, so that two trees can be compared.
func (m *Mutant) Identity() string {
	return strings.Join([]string{m.File, m.Func, m.Operator, m.Before, m.After, fmt.Sprint(m.Ordinal)}, "\t")
}

// Result is what [Packages] makes.
type Result struct {
	Mutants []*Mutant
	Sites   int               // one more than the last site
	Files   map[string]string // the generated files by the path that they replace or add
	Dropped map[string]int    // how many mutants of each operator do not compile
	last    int               // id
}

// add gives a mutant its id.
func (r *Result) add(m *Mutant, dir string, site int) {
	r.last++
	m.ID, m.Site, m.Dir = r.last, site, dir
	r.Mutants = append(r.Mutants, m)
}

// Packages makes the mutants of packages, which are directories from the root of the repository.
func Packages(ctx context.Context, root string, dirs []string) (*Result, error) {
	loaded, err := load(ctx, root, dirs)
	if err != nil {
		return nil, err
	}
	r := &Result{Sites: 1, Files: map[string]string{}, Dropped: map[string]int{}}
	for _, p := range loaded {
		p.find()
		if err := p.write(r); err != nil {
			return nil, fmt.Errorf("%s: %w", p.dir, err)
		}
	}
	number(r.Mutants)
	return r, nil
}

// number counts mutants that would have the same identity, in the order of the code.
func number(mutants []*Mutant) {
	seen := map[string]int{}
	for _, m := range mutants {
		same := m.Identity()
		seen[same]++
		m.Ordinal = seen[same]
	}
}
