// Package cutproxy is a TCP proxy between a test's clients and a server of this machine. It cuts a connection after
// an exact number of bytes, stops answering, or leads to another server, as an address does that a failover moves.
package cutproxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Direction is a way through the proxy.
type Direction int

// The directions: what the client sends, and what the server does.
const (
	Request Direction = iota
	Response
)

func (d Direction) String() string { return [...]string{"request", "response"}[d] }

// Cut says where a connection ends.
type Cut struct {
	Direction Direction // whose bytes are counted
	After     int64     // how many bytes pass; with 0, the first byte causes the cut
	Reset     bool      // the client sees RST; otherwise it sees FIN
	Fresh     bool      // cuts the next connection that is made; otherwise the next that is used
}

// Proxy passes connections on to a server. It is safe for concurrent use, and ends with the test.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex // also of links and traps
	changed  *sync.Cond // stalled, or a link
	upstream string
	links    map[*link]bool
	accepted int64
	armed    *Trap // waits for a connection; nil if there is none
	stalled  bool
	refuses  bool
}

// New starts a proxy to a port of the loopback interface.
func New(t testing.TB, port int) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	testenv.Must(t, err)
	p := &Proxy{t: t, listener: listener, links: map[*link]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.Point(port)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Port is the port of 127.0.0.1 that the proxy listens on.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Point makes new connections lead to another port. Existing ones stay where they are.
func (p *Proxy) Point(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = fmt.Sprintf("127.0.0.1:%d", port)
}

// Accepted returns how many connections there have been.
func (p *Proxy) Accepted() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Arm cuts the next connection that is used or, if the cut is Fresh, made. There is one cut at a time.
func (p *Proxy) Arm(c Cut) *Trap {
	trap := &Trap{Cut: c, proxy: p, finished: make(chan struct{})}
	p.mu.Lock()
	p.armed = trap
	p.mu.Unlock()
	return trap
}

// Stall lets nothing pass from now on, in either direction. New connections get no answer.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

// Resume passes on what Stall has held back, and everything after it.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = false
	p.changed.Broadcast()
}

// Strand lets nothing more pass on the existing connections. New ones work.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stranded = true
	}
}

// Refuse closes new connections at once, or accepts them again.
func (p *Proxy) Refuse(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = is
}

// Break cuts all connections with RST, on both sides.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.abort()
	}
}

// Cut breaks all connections and ends a stall. What the stall held back is lost.
func (p *Proxy) Cut() {
	p.Break()
	p.Resume()
}

func (p *Proxy) close() {
	p.Refuse(true)
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for conn, err := p.listener.Accept(); err == nil; conn, err = p.listener.Accept() {
		p.running.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

// cancelRequest is the code by which a client of PostgreSQL cancels the statement of another connection. pgx does
// so some time after it gives up a connection. Such a connection is not cut.
const cancelRequest = 80877102

func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	l := &link{Proxy: p, client: client}
	p.mu.Lock()
	p.accepted++
	upstream, refuses := p.upstream, p.refuses
	l.made = p.armed
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	head := make([]byte, 8)
	if refuses || testenv.ErrorOf(io.ReadFull(client, head)) != nil {
		return
	}
	l.exempt = binary.BigEndian.Uint32(head[4:]) == cancelRequest
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp4", upstream)
	if err != nil {
		return
	}
	p.mu.Lock()
	l.server = server.(*net.TCPConn)
	if l.aborted {
		_ = server.Close()
	}
	p.mu.Unlock()
	l.run(head)
}
