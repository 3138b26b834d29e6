package cutproxy

import (
	"io"
	"net"
	"sync"
	"time"
)

type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	exempt         bool  // from cuts
	made           *Trap // what was armed when it was made

	mu      sync.Mutex
	trap    *Trap // the cut to be made; nil if there is none
	severed bool  // it was cut: nothing more passes
	ended   bool  // the server has closed its side

	ends     sync.Mutex // of what is below, for one who cannot wait for mu
	opened   *net.TCPConn
	aborted  bool
	over     chan struct{} // closed when it is aborted
	stranded chan struct{} // closed by strand: nothing passes any more
	strand   func()
}

// run passes bytes in both directions, of which head has been read, until both ends are done.
func (l *link) run(server *net.TCPConn, head []byte) {
	l.server = server
	l.ends.Lock()
	l.opened = server
	if l.aborted {
		_ = server.Close()
	}
	l.ends.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		if l.pass(Request, head) {
			l.pump(Request, l.client)
		}
		_ = server.CloseWrite()
		// Unread bytes would make an RST of the end that is to come.
		_, _ = io.Copy(io.Discard, l.client)
	})
	both.Go(func() {
		l.pump(Response, server)
		// After a cut, what the server has to say still is for nobody, but it is to come to its end.
		_, _ = io.Copy(io.Discard, server)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true
		l.settle()
		if !l.severed {
			_ = l.client.CloseWrite()
		}
	})
	both.Wait()
	_ = server.Close()
}

// settle tells those who wait for the end of a connection that was cut.
func (l *link) settle() {
	if l.ended && l.severed {
		close(l.trap.finished)
	}
}

func (l *link) pump(d Direction, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.pass(d, buf[:n]) || err != nil {
			return
		}
	}
}

// pass passes bytes on, up to the cut, and reports whether more may follow.
func (l *link) pass(d Direction, b []byte) bool {
	l.proxy.wait()
	select {
	case <-l.stranded:
		<-l.over
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.severed {
		return false
	}
	to := l.server
	if d == Response {
		to = l.client
	}
	if d == Request && l.trap.done() {
		l.trap = l.proxy.take(l)
	}
	n, cut := len(b), false
	if l.trap != nil {
		n, cut = l.trap.admit(d, b)
	}
	if n > 0 {
		if _, err := to.Write(b[:n]); err != nil && !cut {
			return false
		}
	}
	if cut {
		// Where the request is cut the client is not to see what the server answers to it.
		l.severed = true
		if l.trap.Reset {
			_ = l.client.SetLinger(0)
			_ = l.client.Close()
		} else {
			_ = l.client.CloseWrite()
		}
		_ = l.server.CloseWrite()
		l.settle()
	}
	return !cut
}

func (l *link) abort() {
	l.ends.Lock()
	defer l.ends.Unlock()
	if l.aborted {
		return
	}
	l.aborted = true
	close(l.over)
	for _, conn := range []*net.TCPConn{l.client, l.opened} {
		if conn != nil {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
	}
}

// Trap is a cut that waits for its connection, or has one.
type Trap struct {
	Cut
	proxy    *Proxy
	finished chan struct{} // closed when the server has done with its connection

	mu       sync.Mutex
	disarmed bool
	sprung   bool
	passed   [2]int64
	sent     []byte
}

// take gives a connection the cut that waits for one, if it is for it.
func (p *Proxy) take(l *link) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	trap := p.armed
	if trap == nil || l.exempt || trap.Fresh && l.made != trap {
		return nil
	}
	p.armed = nil
	return trap
}

// admit returns how many of some bytes may pass, and whether the cut comes after them.
func (t *Trap) admit(d Direction, b []byte) (n int, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = len(b)
	if d == t.Direction && t.passed[d]+int64(n) >= t.After && !t.sprung && !t.disarmed {
		n, cut = int(t.After-t.passed[d]), true
		t.sprung = true
	}
	t.passed[d] += int64(n)
	if d == Request {
		t.sent = append(t.sent, b[:n]...)
	}
	return n, cut
}

// done reports whether a connection that has t can have another.
func (t *Trap) done() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.disarmed && !t.sprung
}

// Passed returns how many bytes have passed the connection since it was chosen, in each direction.
func (t *Trap) Passed() [2]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passed
}

// Sent returns what has passed of the request.
func (t *Trap) Sent() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.sent)
}

// closeLimit is how long a server may take to be done with a connection that has ended.
const closeLimit = 30 * time.Second

// Disarm sees to it that nothing is cut any more, and reports whether something was. The server has done with
// that connection then: what it was asked for has been carried out, or never will be.
func (t *Trap) Disarm() (cut bool) {
	t.proxy.t.Helper()
	t.proxy.mu.Lock()
	if t.proxy.armed == t {
		t.proxy.armed = nil
	}
	t.proxy.mu.Unlock()
	t.mu.Lock()
	t.disarmed = true
	cut = t.sprung
	t.mu.Unlock()
	if cut {
		select {
		case <-t.finished:
		case <-time.After(closeLimit):
			t.proxy.t.Errorf("the server goes on with a connection that was cut after %d bytes of the %v", t.After, t.Direction)
		}
	}
	return cut
}
