//go:build unix

package sqlite_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

func TestFaultsOfPaths(t *testing.T) {
	for _, m := range moves {
		if m.back == nil {
			continue
		}
		f := fault{
			name: m.name, class: limiter.ErrMisconfigured,
			begin: func(p *faulty) func() {
				m.away(p.T, p.path)
				p.misses()
				return func() { m.back(p.T, p.path) }
			},
		}
		t.Run(f.name, f.run)
	}
}

// misses takes until the Store misses its file, which must not last long: what it admits meanwhile is
// lost if the file is.
func (p *faulty) misses() {
	p.Helper()
	begin, stop := time.Now(), stalls()
	for {
		err := p.ask(p.Context())
		if errors.Is(err, limiter.ErrMisconfigured) {
			break
		}
		must(p, err)
	}
	if d, most := time.Since(begin), 100*time.Millisecond+grace()+stop(); d > most {
		p.Errorf("the file was missed after %v, want %v at most", d, most)
	}
}

// A file that is gone for good is made anew when somebody says so: by opening it.
func TestFaultsOfAFileThatDoesNotComeBack(t *testing.T) {
	p := &faulty{T: t, path: movable(t), key: "key"}
	p.store = openPath(t, p.path)
	must(t, p.ask(t.Context()))
	must(t, os.Remove(p.path))
	p.misses()
	p.wantFailures(4, limiter.ErrMisconfigured)
	must(t, p.store.Close())
	for _, suffix := range []string{"-wal", "-shm"} {
		must(t, os.Remove(p.path+suffix))
	}
	p.store = openPath(t, p.path)
	p.admitted.Store(0) // what the file knew has gone with it
	p.unknown.Store(0)
	p.recovers()
	p.drains()
}
