package generate

import "strings"

// The variables that a program with mutants reads.
const (
	Chosen  = "LIMITER_MUTANT"         // the ids of mutants in ascending order: "31 54"
	Reached = "LIMITER_MUTANT_REACHED" // a file with one byte for each site, set to 1 when it is reached
)

// helperImports are the packages that the added files import.
var helperImports = []string{"fmt", "io/fs", "os", "regexp", "slices", "strconv", "strings", "syscall", "testing/fstest"}

// helperFile is added to each package.
const helperFile = "zz_mutant_helper.go"

// helper returns the text of that file. The file of reached sites is in shared memory, so that it is
// complete even if the program is killed, and has what child processes reach.
func helper(name string) string {
	return strings.NewReplacer("NAME", name, "CHOSEN", Chosen, "REACHED", Reached).Replace(`package NAME

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

var mutantIDs = func() (ids []int) {
	for _, text := range strings.Fields(os.Getenv("CHOSEN")) {
		id, _ := strconv.Atoi(text)
		ids = append(ids, id)
	}
	return ids
}()

func mutantChosen(id int) bool { return slices.Contains(mutantIDs, id) }

var mutantReached = mutantMap()

func mutantMap() []byte {
	file, err := os.OpenFile(os.Getenv("REACHED"), os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	sites, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return sites
}

func mutantAt(site int) {
	if mutantReached != nil {
		mutantReached[site] = 1
	}
}
`)
}
