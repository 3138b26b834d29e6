package cluster

import (
	"fmt"
	"os/exec"
	"sync"

	"github.com/sqlimit/limiter/internal/daemon"
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
		server, err := daemon.NewPostgres(c.t.Context(), "")
		if err != nil {
			c.t.Fatal(err)
		}
		template.of = &Cluster{t: c.t, server: server}
		template.of.init()
	}
	c.copy(template.of.server.Data, c.server.Data)
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
