// Package cutproxy stands between a client and its server, passes on an exact number of
// bytes, and then cuts the connection; or it falls silent, as a peer does that has gone.
package cutproxy

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
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
	// Direction is the one whose bytes are counted.
	Direction Direction
	// After is how many bytes of that direction pass. Of 0 none does, and the cut is
	// made when there is a first one.
	After int64
	// Reset is whether the client sees RST; else it sees FIN.
	Reset bool
	// Fresh is whether to cut the next connection that is made, from its first byte, and
	// not the next that is used.
	Fresh bool
}

// Proxy accepts connections and passes them on to one server. It is safe for concurrent
// use, and ends with the test.
type Proxy struct {
	t        testing.TB
	upstream string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	armed   *Trap         // waits for a connection; nil if there is none
	gate    chan struct{} // closed unless all stand still
	refuses bool
	closed  bool
}

// New starts a proxy to the server at upstream, "host:port".
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, upstream: upstream, listener: listener, links: map[*link]bool{}, gate: make(chan struct{})}
	close(p.gate)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Port is where the proxy listens, on 127.0.0.1.
func (p *Proxy) Port() uint16 { return p.listener.Addr().(*net.TCPAddr).AddrPort().Port() }

// Arm has the next connection cut that is used, or made. There is one cut at a time.
func (p *Proxy) Arm(c Cut) *Trap {
	trap := &Trap{Cut: c, proxy: p, finished: make(chan struct{})}
	p.mu.Lock()
	p.armed = trap
	p.mu.Unlock()
	return trap
}

// Stall lets nothing pass from now on, in either direction, as if all packets were lost:
// connections seem to be made, and stay without an answer.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Resume lets pass what Stall has held up, and all that comes.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// Strand lets nothing pass any more of the connections that there are, as if their peer
// had gone without a word. New ones work.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.strand()
	}
}

// Refuse has connections refused from now on, as soon as they are made, or lets them be
// made again.
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

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Break()
	p.Resume()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

// cancelRequest is the code by which a client of PostgreSQL asks for an end of what
// another connection does. pgx does so whenever it gives a connection up, some time
// later: such a connection is none of those to be cut.
const cancelRequest = 80877102

func (p *Proxy) serve(client *net.TCPConn) {
	l := &link{proxy: p, client: client, over: make(chan struct{}), stranded: make(chan struct{})}
	p.mu.Lock()
	fresh := p.armed
	if p.closed || p.refuses {
		p.mu.Unlock()
		_ = client.Close()
		return
	}
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
		_ = client.Close()
	}()

	head := make([]byte, 8)
	n, err := io.ReadFull(client, head)
	if err != nil && n == 0 {
		return
	}
	l.exempt = n == len(head) && binary.BigEndian.Uint32(head[4:]) == cancelRequest
	l.made = fresh
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp4", p.upstream)
	if err != nil {
		return
	}
	l.run(server.(*net.TCPConn), head[:n])
}

// wait returns when bytes may pass.
func (p *Proxy) wait() {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	<-gate
}
