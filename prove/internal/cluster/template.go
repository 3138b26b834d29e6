package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// template is the data of a new cluster, which is made once: to copy it takes a fraction
// of the time that initdb does.
var template struct {
	sync.Mutex
	of *Cluster
}

// fromTemplate gives a cluster the data of a new one.
func (c *Cluster) fromTemplate() {
	c.t.Helper()
	template.Lock()
	defer template.Unlock()
	if template.of == nil {
		made := &Cluster{t: c.t, programs: c.programs, dir: newDir(c.t)}
		made.init()
		template.of = made
	}
	c.copy(template.of.data(), c.data())
}

// copy copies a directory as it is.
func (c *Cluster) copy(from, to string) {
	c.t.Helper()
	if out, err := exec.CommandContext(c.t.Context(), "cp", "--archive", from, to).CombinedOutput(); err != nil {
		c.t.Fatalf("cp: %v\n%s", err, out)
	}
}

// RemoveTemplate removes what clusters have been made from, when all tests are done.
func RemoveTemplate() error {
	template.Lock()
	defer template.Unlock()
	if template.of == nil {
		return nil
	}
	if err := template.of.remove(); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	template.of = nil
	return nil
}

// newDir makes a directory that servers may write to.
func newDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "prove") //nolint:usetesting // t.TempDir is closed to others, as whom the server runs
	if err != nil {
		t.Fatal(err)
	}
	if as := account(t); as != nil {
		if err := os.Chown(dir, as.UID, as.GID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
