// Package relay passes TCP connections on to a server that can be another one from one
// moment to the next, as an address does that a failover moves.
package relay

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

// Relay is safe for concurrent use. It ends with its test.
type Relay struct {
	listener net.Listener
	wait     sync.WaitGroup

	mu       sync.Mutex
	upstream string
	pairs    map[*pair]bool
	accepted int64
	open     chan struct{} // closed unless the Relay is stalled
	closed   bool
}

// New returns a Relay to a port of the loopback interface.
func New(t testing.TB, port int) *Relay {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: listener, pairs: map[*pair]bool{}, open: make(chan struct{})}
	close(r.open)
	r.Point(port)
	r.wait.Go(r.accept)
	t.Cleanup(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		_ = listener.Close()
		r.Cut()
		r.wait.Wait()
	})
	return r
}

// Port is where the Relay listens.
func (r *Relay) Port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// Accepted is how many connections there have been.
func (r *Relay) Accepted() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

// Point makes new connections lead to another port. Those there are stay where they are.
func (r *Relay) Point(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upstream = fmt.Sprintf("127.0.0.1:%d", port)
}

// Stall keeps back all that comes from now on, until Cut.
func (r *Relay) Stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// Cut ends all connections. What was kept back is lost, and new connections work again.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.end()
	}
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.wait.Go(func() { r.serve(client) })
	}
}

func (r *Relay) serve(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	r.accepted++
	upstream := r.upstream
	r.mu.Unlock()
	server, err := net.Dial("tcp4", upstream) //nolint:noctx // the loopback interface answers at once
	if err != nil {
		return
	}
	p := &pair{client: client, server: server, over: make(chan struct{})}
	defer p.end()
	r.mu.Lock()
	closed := r.closed
	r.pairs[p] = true
	r.mu.Unlock()
	if closed {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.pass(p, client, server) })
	both.Go(func() { r.pass(p, server, client) })
	both.Wait()
	r.mu.Lock()
	delete(r.pairs, p)
	r.mu.Unlock()
}

// pass passes on what comes from one side, until one of them ends.
func (r *Relay) pass(p *pair, from, to net.Conn) {
	defer p.end()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			r.mu.Lock()
			open := r.open
			r.mu.Unlock()
			select {
			case <-open:
			case <-p.over:
				return
			}
			select { // both, when a Cut opens it
			case <-p.over:
				return
			default:
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pair is a connection, and the one that it is passed on by.
type pair struct {
	client, server net.Conn
	once           sync.Once
	over           chan struct{}
}

func (p *pair) end() {
	p.once.Do(func() {
		close(p.over)
		_ = p.client.Close()
		_ = p.server.Close()
	})
}
